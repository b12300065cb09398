package sys

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

func TestSockaddrIP(t *testing.T) {
	for _, c := range []struct {
		text   string
		family Family
		back   string // "" if as text
	}{
		{"127.0.0.1:80", IPv4, ""},
		{"0.0.0.0:0", IPv4, ""},
		{"255.255.255.255:65535", IPv4, ""},
		{"[::1]:443", IPv6, ""},
		{"[::]:1", IPv6, ""},
		{"[2001:db8::1]:53", IPv6, ""},
		{"[::ffff:192.0.2.1]:53", IPv6, "192.0.2.1:53"}, // IPv4 in IPv6 is returned as IPv4
		{"[fe80::1%1]:7", IPv6, ""},
		{"[fe80::1%lo]:7", IPv6, "[fe80::1%1]:7"}, // lo is interface 1
	} {
		var sa Sockaddr
		ap := netip.MustParseAddrPort(c.text)
		if err := sa.SetAddrPort(ap); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		want := ap
		if c.back != "" {
			want = netip.MustParseAddrPort(c.back)
		}
		if sa.Family() != c.family || sa.AddrPort() != want || sa.UnixPath() != "" {
			t.Errorf("%s: family %d, %v, path %q", c.text, sa.Family(), sa.AddrPort(), sa.UnixPath())
		}
	}
	var sa Sockaddr
	if sa.Family() != 0 || sa.AddrPort().IsValid() || sa.UnixPath() != "" {
		t.Error("an address never filled is one")
	}
	for _, bad := range []netip.AddrPort{{}, netip.AddrPortFrom(netip.Addr{}, 80), netip.MustParseAddrPort("[fe80::1%no-such-interface]:7")} {
		if err := sa.SetAddrPort(bad); err == nil {
			t.Errorf("%v is an address", bad)
		}
	}
}

func TestSockaddrUnix(t *testing.T) {
	for _, path := range []string{"/run/a", "a", "@a", "@", "", strings.Repeat("x", MaxUnixPath), "@" + strings.Repeat("x", MaxUnixPath-1), strings.Repeat("x", MaxUnixPath+1)} {
		var sa Sockaddr
		err := sa.SetUnix(path)
		if bad := path == "" || path == "@" || len(path) > MaxUnixPath; bad != (err != nil) {
			t.Errorf("path %q: %v", path, err)
		} else if !bad && (sa.UnixPath() != path || sa.Family() != Unix || sa.AddrPort().IsValid()) {
			t.Errorf("path %q: family %d, path %q", path, sa.Family(), sa.UnixPath())
		}
	}
}

// The options that the kernel reports are those that were set.
func TestStreamSockets(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("x", max(1, MaxUnixPath-len(dir)-1)))
	for _, c := range []struct {
		name string
		set  func(*Sockaddr) error
	}{
		{"tcp4", func(sa *Sockaddr) error { return sa.SetAddrPort(netip.MustParseAddrPort("127.0.0.1:0")) }},
		{"tcp6", func(sa *Sockaddr) error { return sa.SetAddrPort(netip.MustParseAddrPort("[::1]:0")) }},
		{"unix", func(sa *Sockaddr) error { return sa.SetUnix(filepath.Join(dir, "s")) }},
		{"longest", func(sa *Sockaddr) error { return sa.SetUnix(long) }},
		{"abstract", func(sa *Sockaddr) error { return sa.SetUnix("@penstock-sys-test") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := Linux{}
			var at, peer Sockaddr
			if err := c.set(&at); err != nil {
				t.Fatal(err)
			}
			l, err := Listen(Linux{}, &at, false, false, 0, func(int) error { return nil })
			if err == Errno(EADDRNOTAVAIL) {
				t.Skip("no IPv6 here")
			}
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close(l)
			if _, typ, listening, e := SocketKind(Linux{}, l); e != 0 || typ != SockStream || !listening {
				t.Errorf("kind: %d, %v, %v", typ, listening, e)
			}
			if _, e := k.Accept(l, &peer); e != EAGAIN {
				t.Errorf("accept of nobody: %v", e)
			}
			var bound Sockaddr
			if e := LocalAddr(l, &bound); e != 0 {
				t.Fatal(e)
			}
			if bound.UnixPath() != at.UnixPath() || bound.Family() != at.Family() {
				t.Errorf("bound to %q", bound.UnixPath())
			}
			a, e := k.Socket(bound.Family(), false)
			if e != 0 {
				t.Fatal(e)
			}
			defer k.Close(a)
			if e := k.Connect(a, &bound); e != 0 && e != EINPROGRESS {
				t.Fatal(e)
			}
			var b int
			testwait.Until(t, "a connection to accept", func() bool { // it arrives within the call of connect(2), or soon after
				b, e = k.Accept(l, &peer)
				return e != EAGAIN
			})
			if e != 0 {
				t.Fatal(e)
			}
			defer k.Close(b)
			if bound.Family() == Unix && peer.UnixPath() != "" {
				t.Errorf("a peer without a name is called %q", peer.UnixPath())
			}
			var local, remote Sockaddr
			if LocalAddr(a, &local) != 0 || PeerAddr(b, &remote) != 0 || local.AddrPort() != remote.AddrPort() || peer.AddrPort() != remote.AddrPort() {
				t.Errorf("a is %v, b's peer %v, accepted from %v", local.AddrPort(), remote.AddrPort(), peer.AddrPort())
			}
			passBytes(t, a, b)
			if SockError(Linux{}, a) != 0 {
				t.Error("an error is pending")
			}
		})
	}
}

// passBytes sends, splices, shuts down and closes between two connected sockets.
func passBytes(t *testing.T, a, b int) {
	t.Helper()
	k := Linux{}
	buf := make([]byte, 100)
	if _, e := k.Recv(b, buf); e != EAGAIN {
		t.Errorf("recv of nothing: %v", e)
	}
	if n, e := k.Send(a, []byte("hello")); n != 5 || e != 0 {
		t.Fatal(n, e)
	}
	r, w, got, e := k.Pipe(64 << 10)
	if e != 0 || got < 64<<10 {
		t.Fatal(got, e)
	}
	defer k.Close(r)
	defer k.Close(w)
	arrives := func(call func() (int, Errno)) (n int, e Errno) {
		testwait.Until(t, "what the peer has sent", func() bool {
			n, e = call()
			return e != EAGAIN
		})
		return n, e
	}
	splice := func() (int, Errno) { return k.Splice(b, w, 1<<20) }
	if n, e := arrives(splice); n != 5 || e != 0 {
		t.Fatal(n, e)
	}
	if n, e := k.ReadPipe(r, buf); string(buf[:n]) != "hello" || e != 0 {
		t.Fatal(n, e)
	}
	if _, e := k.ReadPipe(r, buf); e != EAGAIN {
		t.Errorf("an empty pipe: %v", e)
	}
	if _, e := k.Splice(b, w, 1<<20); e != EAGAIN {
		t.Errorf("splice of nothing: %v", e)
	}
	if e := k.ShutdownWrite(a); e != 0 {
		t.Fatal(e)
	}
	if n, e := arrives(func() (int, Errno) { return k.Recv(b, buf) }); n != 0 || e != 0 {
		t.Errorf("the end: %d, %v", n, e)
	}
	if n, e := splice(); n != 0 || e != 0 {
		t.Errorf("the end, spliced: %d, %v", n, e)
	}
	if _, e := k.Send(a, buf); e != EPIPE {
		t.Errorf("send after shutdown: %v", e)
	}
}

func TestIsSocket(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0o600)
	if IsSocket(file) || IsSocket(file+"no") {
		t.Error("no socket is one")
	}
}
