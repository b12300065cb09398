package relay

import (
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Of a TCP upstream, SIOCINQ counts nothing that is behind an urgent byte which comes next. It is not read, all the same: a client that has closed
// its TLS without close_notify was cut.
func TestAllReadBehindUrgent(t *testing.T) {
	a, b := testnet.Pair(t, "tcp4")
	if err := testkernel.Urgent(a, '!'); err != nil {
		t.Fatal(err)
	}
	raw, err := b.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	allBy := func(k sys.Kernel) (read bool) {
		raw.Control(func(fd uintptr) {
			f := &streamFlow{fd: [2]int32{-1, int32(fd)}, tcp: [2]bool{true, true}}
			read = f.allRead(k, sideUpstream)
		})
		return read
	}
	all := func() bool { return allBy(sys.Linux{}) }
	mark := func() (at bool) {
		raw.Control(func(fd uintptr) { at = sys.Linux{}.AtMark(int(fd)) })
		return at
	}
	testwait.Until(t, "the urgent byte comes", mark)
	if !all() {
		t.Error("an urgent byte counts, which no read returns")
	}
	io.WriteString(a, "text")
	testwait.Until(t, "what is behind it comes", func() (unread bool) {
		raw.Control(func(fd uintptr) { unread, _ = sys.Linux{}.HasUnread(int(fd)) })
		return unread
	})
	if all() {
		t.Error("all is read, and 4 bytes are behind an urgent one")
	}
	if allBy(&signalledKernel{}) {
		t.Error("all is read, and 4 bytes are behind an urgent one, which a pending signal hides")
	}
	if n, err := b.Read(make([]byte, 100)); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if !all() {
		t.Error("something can be read behind the last byte")
	}
}

// signalledKernel is one in which a signal is pending when a receive comes to an urgent byte first: it stops there (tcp_recvmsg_locked).
type signalledKernel struct {
	sys.Linux
	handled bool
}

func (k *signalledKernel) HasUnread(fd int) (bool, sys.Errno) {
	if k.handled {
		return k.Linux.HasUnread(fd)
	}
	k.handled = true
	return false, 0
}
