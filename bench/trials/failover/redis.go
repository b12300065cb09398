//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// redis is a connection to Redis that needs no password: version 2 of its protocol.
type redis struct {
	conn
	in *bufio.Reader
}

func (r *redis) start() (string, error) {
	said, err := r.ask("INFO server")
	if err != nil {
		return "", err
	}
	_, port, _ := strings.Cut(strings.Join(said, ""), "\ntcp_port:")
	port, _, ok := strings.Cut(port, "\r\n")
	if !ok {
		return "", fmt.Errorf("the server says no port: %q", said)
	}
	return port, nil
}

func (r *redis) create() error { return nil }

func (r *redis) write(writer string, row int) error {
	_, err := r.ask(fmt.Sprintf("SADD %s %d", writer, row))
	return err
}

func (r *redis) rows(writer string) ([]string, error) { return r.ask("SMEMBERS " + writer) }

func (r *redis) ask(command string) ([]string, error) {
	r.limit()
	if _, err := io.WriteString(r, command+"\r\n"); err != nil {
		return nil, err
	}
	return r.answer()
}

// answer returns a string, or the strings of an array.
func (r *redis) answer() ([]string, error) {
	line, err := r.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty line")
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+', ':':
		return []string{text}, nil
	case '-':
		if strings.HasPrefix(text, "READONLY") || strings.HasPrefix(text, "NOREPLICAS") {
			return nil, fmt.Errorf("%w: %s", errStandby, text)
		}
		return nil, errors.New(text)
	}
	n, err := strconv.ParseUint(text, 10, 24)
	if err != nil || kind != '$' && kind != '*' {
		return nil, fmt.Errorf("an answer %q", line)
	}
	if kind == '$' {
		b := make([]byte, n+2)
		_, err := io.ReadFull(r.in, b)
		return []string{string(b[:n])}, err
	}
	var all []string
	for range n {
		one, err := r.answer()
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}
