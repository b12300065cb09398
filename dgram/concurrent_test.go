package dgram

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"
	"time"
)

// TestConcurrent makes many goroutines write and read one pair of sockets. Each
// datagram must arrive once, with its contents.
func TestConcurrent(t *testing.T) {
	const writers, readers, batches, size = 4, 4, 30, 16
	eachLevel(t, func(t *testing.T, l level) {
		p := newPath(t, "v4")
		send, recv := l.conn(t, p.send), l.conn(t, p.recv)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for b := range batches {
					ms := make([]Message, size)
					for i := range ms {
						ms[i] = Message{Buf: payload((w*batches+b)*size+i, 8+i%3), Addr: p.to}
					}
					if n, err := send.WriteBatch(ms); n != size || err != nil {
						t.Errorf("WriteBatch = %d, %v", n, err)
						return
					}
				}
			})
		}
		var mu sync.Mutex
		seen := make(map[uint64]int)
		for range readers {
			wg.Go(func() {
				ms := MakeMessages(4)
				for {
					n, err := recv.ReadBatch(ms)
					if errors.Is(err, os.ErrDeadlineExceeded) {
						return
					}
					if err != nil {
						t.Errorf("ReadBatch = %d, %v", n, err)
						return
					}
					mu.Lock()
					for i := range ms[:n] {
						for d := range ms[i].Datagrams() {
							seen[binary.BigEndian.Uint64(d)]++
						}
					}
					all := len(seen) == writers*batches*size
					mu.Unlock()
					if all {
						p.recv.SetReadDeadline(time.Now())
					}
					recv.Stats()
				}
			})
		}
		wg.Wait()
		if len(seen) != writers*batches*size {
			t.Errorf("%d different datagrams, want %d", len(seen), writers*batches*size)
		}
		for seq, times := range seen {
			if times != 1 {
				t.Errorf("datagram %d came %d times", seq, times)
			}
		}
		checkBalance(t, send, recv)
	})
}
