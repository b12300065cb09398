//go:build linux

package load

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
)

// TLSSink is the far end of a TLSSpec.
type TLSSink struct {
	Addr string

	spec  TLSSpec
	plain *Sink // of echoes without TLS
	l     net.Listener
}

// NewTLSSink listens on a free port of 127.0.0.1. With a certificate, it talks TLS.
func NewTLSSink(spec TLSSpec, certificate, key string) (*TLSSink, error) {
	if certificate == "" && spec.Kind != Up && spec.Kind != Down {
		s, err := NewSink(Spec{Kind: Connect, Size: spec.Size, Conns: spec.Conns}, "127.0.0.1", false)
		if err != nil {
			return nil, err
		}
		return &TLSSink{Addr: s.Addr, plain: s}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, DynamicRecordSizingDisabled: true})
	}
	return &TLSSink{Addr: addr, spec: spec, l: l}, nil
}

// Serve serves until it fails, and always returns an error. What fails on one connection is the generator's to report: it misses the echo, or the count.
func (s *TLSSink) Serve() error {
	if s.plain != nil {
		return s.plain.Serve()
	}
	for {
		c, err := s.l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			s.serve(c)
		}()
	}
}

func (s *TLSSink) serve(c net.Conn) {
	var bytes atomic.Int64
	var blocks uint64
	var err error
	switch s.spec.Kind {
	case Up:
		blocks, err = readBlocks(c, s.spec.Size, &bytes)
	case Down:
		var stop atomic.Bool
		go func() {
			var b [1]byte
			c.Read(b[:])
			stop.Store(true)
		}()
		blocks, err = writeBlocks(c, s.spec.Size, &stop, &bytes)
	default:
		buf := make([]byte, idlePiece)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	if err != nil {
		return
	}
	c.Write(binary.LittleEndian.AppendUint64(nil, blocks))
	io.Copy(io.Discard, c)
}
