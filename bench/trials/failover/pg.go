//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// postgres is a connection to PostgreSQL that needs no password: as much of its protocol, version 3.0, as one query at a time takes.
// (PostgreSQL's manual, "Frontend/Backend Protocol", "Message Formats")
type postgres struct{ conn }

// login waits until the server takes queries.
func (c *postgres) login() error {
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

// ask runs a statement and returns the first column of its rows.
func (c *postgres) ask(text string) ([]string, error) {
	c.limit()
	b := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(text)+1))
	if _, err := c.Write(append(append(b, text...), 0)); err != nil {
		return nil, err
	}
	return c.answer()
}

// answer reads until the server is ready for the next query.
func (c *postgres) answer() (column []string, err error) {
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

func (c *postgres) message() (kind byte, body []byte, err error) {
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
	var code, message string
	for field := range strings.SplitSeq(string(body), "\x00") {
		switch {
		case strings.HasPrefix(field, "C"):
			code = field[1:]
		case strings.HasPrefix(field, "M"):
			message = field[1:]
		}
	}
	if code == "25006" { // read_only_sql_transaction
		return fmt.Errorf("%w: %s", errStandby, message)
	}
	return fmt.Errorf("%s (%s)", message, code)
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
