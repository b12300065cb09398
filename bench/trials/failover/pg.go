//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// conn is a connection to PostgreSQL that needs no password: as much of its protocol, version 3.0, as one query at a time takes.
// (PostgreSQL's manual, "Frontend/Backend Protocol", "Message Formats")
type conn struct {
	net.Conn
	within time.Duration // how long a query may take; 0: for ever
}

// serverError is an error that the server has reported.
type serverError struct{ code, message string }

func (e *serverError) Error() string { return fmt.Sprintf("%s (%s)", e.message, e.code) }

// readOnly reports whether a server that is not the primary has refused a write (read_only_sql_transaction).
func readOnly(err error) bool {
	e, ok := errors.AsType[*serverError](err)
	return ok && e.code == "25006"
}

// dial connects, and waits until the server takes queries. Nothing, this included, takes longer than within, unless that is 0.
func dial(addr string, within time.Duration) (*conn, error) {
	c, err := connect(addr, within)
	if err != nil {
		return nil, err
	}
	if err := c.start(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// connect connects. The caller must call start before queries.
func connect(addr string, within time.Duration) (*conn, error) {
	d := net.Dialer{Timeout: within}
	nc, err := d.Dial("tcp", addr)
	return &conn{nc, within}, err
}

// start waits until the server takes queries.
func (c *conn) start() error {
	c.limit()
	const version = 3 << 16
	text := "user\x00postgres\x00database\x00postgres\x00\x00"
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(text)))
	b = binary.BigEndian.AppendUint32(b, version)
	if _, err := c.Write(append(b, text...)); err != nil {
		return err
	}
	_, err := c.answer()
	return err
}

func (c *conn) limit() {
	if c.within > 0 {
		c.SetDeadline(time.Now().Add(c.within))
	}
}

// query runs a statement and returns the first column of its rows.
func (c *conn) query(text string) ([]string, error) {
	c.limit()
	b := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(text)+1))
	if _, err := c.Write(append(append(b, text...), 0)); err != nil {
		return nil, err
	}
	return c.answer()
}

// answer reads until the server is ready for the next query.
func (c *conn) answer() (column []string, err error) {
	for {
		kind, body, bad := c.message()
		if bad != nil {
			return nil, errors.Join(err, bad) // the server says why before it closes
		}
		switch kind {
		case 'Z':
			return column, err
		case 'E':
			err = parseError(body)
		case 'D':
			value, bad := firstColumn(body)
			if bad != nil {
				return nil, bad
			}
			column = append(column, value)
		case 'R':
			if len(body) < 4 || binary.BigEndian.Uint32(body) != 0 {
				return nil, errors.New("the server asks for a password")
			}
		}
	}
}

func (c *conn) message() (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > 1<<24 {
		return 0, nil, fmt.Errorf("a message of %d bytes", n)
	}
	body = make([]byte, n-4)
	_, err = io.ReadFull(c, body)
	return head[0], body, err
}

// parseError reads the fields of an ErrorResponse.
func parseError(body []byte) error {
	e := new(serverError)
	for field := range strings.SplitSeq(string(body), "\x00") {
		switch {
		case strings.HasPrefix(field, "C"):
			e.code = field[1:]
		case strings.HasPrefix(field, "M"):
			e.message = field[1:]
		}
	}
	return e
}

// firstColumn reads the first value of a DataRow.
func firstColumn(body []byte) (string, error) {
	if len(body) < 6 {
		return "", fmt.Errorf("a row of %d bytes", len(body))
	}
	n := int32(binary.BigEndian.Uint32(body[2:]))
	if n < 0 || int(n) > len(body)-6 {
		return "", fmt.Errorf("a value of %d bytes in a row of %d", n, len(body))
	}
	return string(body[6 : 6+n]), nil
}
