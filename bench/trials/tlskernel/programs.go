//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
)

// program is a connection that another program has made, through its standard input and output. It ends well when its input does.
type program struct {
	in, out *os.File
	cmd     *exec.Cmd
	ended   func() error // waits for its end
}

func startProgram(name string, args ...string) (conn, error) {
	input, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	out, output, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer output.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout = input, output
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return &program{in, out, cmd, sync.OnceValue(func() error {
		late := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		defer late.Stop()
		return cmd.Wait()
	})}, nil
}

// Read reads what the program has received. Its exit code says whether that has ended well: its output ends also if the connection was cut.
func (p *program) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if err == io.EOF {
		if failed := p.ended(); failed != nil {
			err = failed
		}
	}
	return n, err
}

func (p *program) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *program) CloseWrite() error           { return p.in.Close() }

func (p *program) SetDeadline(t time.Time) error {
	return errors.Join(p.in.SetWriteDeadline(t), p.out.SetReadDeadline(t))
}

// Close ends the program if it has not ended by itself.
func (p *program) Close() error {
	p.in.Close()
	p.out.Close()
	return p.ended()
}

func dialOpenSSL(version string) func(s *setup, address string) (conn, error) {
	return func(s *setup, address string) (conn, error) {
		return startProgram("openssl", "s_client", version, "-quiet", "-no_ign_eof", "-nocommands", "-verify_return_error", "-CAfile", s.authority,
			"-servername", certs.Name, "-connect", address)
	}
}

func dialRustls(version string) func(s *setup, address string) (conn, error) {
	return func(s *setup, address string) (conn, error) {
		return startProgram(s.rustls, version, s.authority, certs.Name, address)
	}
}
