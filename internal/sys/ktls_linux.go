package sys

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TLSKeys are what one direction of a TLS 1.3 connection is encrypted with from the next record on.
type TLSKeys struct {
	Suite uint16 // the cipher suite's number, RFC 8446, B.4
	Key   []byte
	IV    [12]byte
	Next  uint64 // the sequence number of the next record, RFC 8446, 5.3
}

// Wipe forgets the keys.
func (k *TLSKeys) Wipe() {
	clear(k.Key)
	clear(k.IV[:])
}

// The types of TLS records, RFC 8446, 5.1.
const (
	RecordAlert     = 21
	RecordHandshake = 22
	RecordData      = 23
)

// From linux/tls.h.
const (
	tlsSend          = 1
	tlsReceive       = 2
	tlsSetRecordType = 1
	tlsGetRecordType = 2
	tlsVersion13     = 0x0304
	tlsAESGCM128     = 51
	tlsAESGCM256     = 52
	tlsChaCha20      = 54
)

// info returns the struct tls12_crypto_info_* of linux/tls.h; nil: the kernel has no such cipher.
func (k *TLSKeys) info() []byte {
	head := func(cipher uint16) []byte {
		return binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(make([]byte, 0, 64), tlsVersion13), cipher)
	}
	var b []byte
	switch {
	case k.Suite == 0x1301 && len(k.Key) == 16:
		b = append(append(append(head(tlsAESGCM128), k.IV[4:]...), k.Key...), k.IV[:4]...)
	case k.Suite == 0x1302 && len(k.Key) == 32:
		b = append(append(append(head(tlsAESGCM256), k.IV[4:]...), k.Key...), k.IV[:4]...)
	case k.Suite == 0x1303 && len(k.Key) == 32:
		b = append(append(head(tlsChaCha20), k.IV[:]...), k.Key...)
	default:
		return nil
	}
	return binary.BigEndian.AppendUint64(b, k.Next)
}

// GiveTLS implements [Kernel].
func (Linux) GiveTLS(fd int, out, in *TLSKeys) (begun bool, e Errno) {
	tx, rx := out.info(), in.info()
	defer clear(tx)
	defer clear(rx)
	if tx == nil || rx == nil {
		return false, EOPNOTSUPP
	}
	if err := unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_ULP, "tls"); err != nil {
		return false, errnoOf(err)
	}
	for _, x := range [...]struct {
		name int
		info []byte
	}{{tlsReceive, rx}, {tlsSend, tx}} {
		_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_TLS, uintptr(x.name), uintptr(unsafe.Pointer(&x.info[0])), uintptr(len(x.info)), 0)
		if e != 0 {
			return begun, e
		}
		begun = true
	}
	return true, 0
}

// RecvRecord implements [Kernel].
func (Linux) RecvRecord(fd int, p []byte, peek bool) (n int, kind uint8, e Errno) {
	if len(p) == 0 {
		return 0, 0, EINVAL
	}
	flags := unix.MSG_DONTWAIT
	if peek {
		flags |= unix.MSG_PEEK
	}
	var control [hdrLen + alignTo]byte
	n, room, _, _, err := unix.Recvmsg(fd, p, control[:], flags)
	if err != nil {
		return 0, 0, errnoOf(err)
	}
	kind = RecordData
	if level, typ, data, _, ok := cutControl(control[:room]); ok && level == unix.SOL_TLS && typ == tlsGetRecordType && len(data) > 0 {
		kind = data[0]
	}
	return n, kind, 0
}

// SendRecord implements [Kernel].
func (Linux) SendRecord(fd int, kind uint8, p []byte) Errno {
	control, data := appendControl(make([]byte, 0, hdrLen+alignTo), unix.SOL_TLS, tlsSetRecordType, 1)
	data[0] = kind
	_, err := unix.SendmsgN(fd, p, control, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	runtime.KeepAlive(control)
	if err != nil {
		return errnoOf(err)
	}
	return 0
}

// ProbeKernelTLS gives a connection of this process with itself to the kernel, with each cipher, and has it carry something.
func ProbeKernelTLS() error {
	for _, c := range [...]struct {
		name  string
		suite uint16
		size  int
	}{{"AES-128-GCM", 0x1301, 16}, {"AES-256-GCM", 0x1302, 32}, {"ChaCha20-Poly1305", 0x1303, 32}} {
		if err := probeKernelTLS(c.suite, c.size); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func probeKernelTLS(suite uint16, size int) error {
	a, b, err := tcpPair()
	if err != nil {
		return err
	}
	pair := [2]int{a, b}
	defer closeAll(a, b)
	keys := func() *TLSKeys { return &TLSKeys{Suite: suite, Key: make([]byte, size)} } // nothing secret is encrypted with them
	for _, fd := range pair {
		if _, e := (Linux{}).GiveTLS(fd, keys(), keys()); e != 0 {
			return os.NewSyscallError("setsockopt TLS", e)
		}
	}
	if _, e := (Linux{}).Send(pair[0], []byte{42}); e != 0 {
		return os.NewSyscallError("send", e)
	}
	if _, err := pollIn(pair[1], 1000); err != nil {
		return err
	}
	var p [1]byte
	if n, e := (Linux{}).Recv(pair[1], p[:]); e != 0 || n != 1 || p[0] != 42 {
		return os.NewSyscallError("recv", max(e, EIO))
	}
	return nil
}
