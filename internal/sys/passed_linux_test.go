package sys

import "testing"

// TestRoomOnUnixSockets: the room for control messages follows the socket that
// is read from, whatever the vector was used for before. Room for descriptors
// on a Unix socket would let a peer fill the table for as long as a batch takes.
func TestRoomOnUnixSockets(t *testing.T) {
	for _, made := range []Family{0, IPv4, IPv6, Unix} {
		for _, timed := range []bool{false, true} {
			v := NewVector(3, 3, made)
			if timed {
				v.OfferTime()
			}
			unixRoom := 0
			if timed {
				unixRoom = timeRoom
			}
			for turn, family := range []Family{Unix, IPv4, Unix, Unix, IPv6, IPv6, Unix} {
				want := ControlSize
				if family == Unix {
					want = unixRoom
				}
				if turn%2 == 0 {
					v.SetBuf(1, make([]byte, 1))
				} else {
					v.Rearm(1, 1)
				}
				v.offer(family)
				for i := range v.hdrs {
					if got := int(v.hdrs[i].hdr.Controllen); got != want {
						t.Fatalf("made for %d, timed %t, turn %d from family %d: header %d offers %d bytes, want %d", made, timed, turn, family, i, got, want)
					}
				}
			}
		}
	}
}

// TestTimeRoomIsForTheTimeAlone: what is left of it is too short for a descriptor.
func TestTimeRoomIsForTheTimeAlone(t *testing.T) {
	b, _ := appendControl(make([]byte, 0, ControlSize), 1, 35, 2*alignTo)
	if len(b) != timeRoom {
		t.Errorf("the time takes %d bytes, its room is %d", len(b), timeRoom)
	}
}
