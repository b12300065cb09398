package sys

import (
	"net"
	"net/netip"
	"testing"
	"unsafe"
)

// udpPair is a connected sender and a receiver on loopback, with the receiver's address.
func udpPair(t *testing.T) (send, recv uintptr, to netip.AddrPort) {
	t.Helper()
	r, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); s.Close() })
	fd := func(c *net.UDPConn) (fd uintptr) {
		rc, err := c.SyscallConn()
		if err == nil {
			err = rc.Control(func(f uintptr) { fd = f })
		}
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	return fd(s), fd(r), r.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestVectorRoundTrip(t *testing.T) {
	for _, raw := range []bool{false, true} {
		send, recv, to := udpPair(t)
		w, r := NewVector(4, 8, IPv4), NewVector(4, 4, IPv4)
		if SetGRO(Linux{}, int(recv), true) != 0 || !HasGSO(Linux{}, int(send)) {
			t.Fatal("Linux 5.0 and later have UDP_GRO and UDP_SEGMENT")
		}
		// A run of three datagrams in three buffers, and one plain datagram.
		i := w.Open()
		w.SetNameLen(i, PutAddrPort(w.Name(i), IPv4, to, 0))
		w.SetControlLen(i, len(AppendSegment(w.Control(i), 2)))
		for _, s := range []string{"ab", "cd", "e"} {
			w.Add([]byte(s))
		}
		i = w.Open()
		w.SetNameLen(i, PutAddrPort(w.Name(i), IPv4, to, 0))
		w.Add([]byte("plain"))
		write, read := w.Send, r.Recv
		if raw {
			write, read = w.SendRaw, r.RecvRaw
		}
		n, e := write(send, 0, 2)
		if n != 2 || e != 0 {
			t.Fatalf("sent %d messages: %v", n, e)
		}
		w.Release()
		for j := range 4 {
			r.SetBuf(j, make([]byte, 1<<16))
		}
		if n, e = read(recv, IPv4); n != 2 || e != 0 {
			t.Fatalf("received %d messages: %v", n, e)
		}
		for j, want := range []struct {
			text    string
			segment int
		}{{"abcde", 2}, {"plain", 0}} {
			n, flags, name, control := r.Received(j)
			from, _ := GetAddrPort(name)
			got := string(unsafe.Slice(r.iovs[j].Base, n))
			if got != want.text || flags != 0 || from.Addr() != to.Addr() || ParseControl(control).Segment != want.segment {
				t.Errorf("message %d: %q flags %#x from %s control %x", j, got, flags, from, control)
			}
		}
		r.Release()
	}
}

func TestVectorPinsNothing(t *testing.T) {
	v := NewVector(2, 4, IPv4)
	v.SetBuf(0, make([]byte, 1))
	v.SetBuf(1, make([]byte, 1))
	v.Release()
	v.Open()
	for range 4 {
		v.Add(make([]byte, 1))
	}
	if v.Room(1) || v.Opened() != 1 {
		t.Errorf("four of four buffers used, and there is room for more")
	}
	v.Release()
	for i, iov := range v.iovs {
		if iov.Base != nil {
			t.Errorf("buffer %d is kept", i)
		}
	}
	if !v.Room(4) {
		t.Error("no room after Release")
	}
}

func TestSendStopsAtTheFirstError(t *testing.T) {
	send, _, to := udpPair(t)
	v := NewVector(3, 3, IPv4)
	for j := range 3 {
		i := v.Open()
		v.SetNameLen(i, PutAddrPort(v.Name(i), IPv4, to, 0))
		v.Add(make([]byte, []int{1, 65508, 1}[j])) // the second is longer than a datagram can be
	}
	if n, e := v.Send(send, 0, 3); n != 1 || e != 0 {
		t.Fatalf("Send = %d, %v", n, e)
	}
	if n, e := v.Send(send, 1, 3); n != 0 || e == 0 {
		t.Fatalf("Send from the bad one = %d, %v", n, e)
	}
	if n, e := v.SendRaw(send, 2, 3); n != 1 || e != 0 {
		t.Fatalf("Send behind it = %d, %v", n, e)
	}
}

func TestSetBuffer(t *testing.T) {
	send, recv, _ := udpPair(t)
	for _, fd := range []uintptr{send, recv} {
		got, e := SetBuffer(Linux{}, int(fd), fd == send, 100_000)
		if e != 0 || got < 100_000 {
			t.Errorf("granted %d, %v", got, e)
		}
	}
	if _, e := Drops(Linux{}, int(recv)); e != 0 {
		t.Error(e)
	}
}
