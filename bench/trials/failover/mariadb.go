//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// mariadb is a connection to MariaDB as root without a password: as much of its protocol as one query at a time takes.
// (MariaDB's documentation, "MariaDB Protocol", "Connecting" and "Result Set Packets")
type mariadb struct {
	conn
	sequence byte
}

func (m *mariadb) login() error {
	m.limit()
	if _, err := m.packet(); err != nil { // the greeting
		return err
	}
	const longPassword, withDatabase, protocol41, secure = 1, 8, 0x200, 0x8000
	b := binary.LittleEndian.AppendUint32(nil, longPassword|withDatabase|protocol41|secure)
	b = binary.LittleEndian.AppendUint32(b, 1<<24)
	b = append(append(b, 45), make([]byte, 23)...) // utf8mb4
	if err := m.send(append(b, "root\x00\x00test\x00"...)); err != nil {
		return err
	}
	b, err := m.packet()
	if err == nil && b[0] == 0xfe { // another plugin than it thought; no password is the same with each
		if err := m.send(nil); err != nil {
			return err
		}
		_, err = m.packet()
	}
	return err
}

// ask runs a statement and returns the first column of its rows.
func (m *mariadb) ask(statement string) (column []string, err error) {
	m.limit()
	m.sequence = 0
	if err := m.send(append([]byte{3}, statement...)); err != nil { // COM_QUERY
		return nil, err
	}
	b, err := m.packet()
	if err != nil || b[0] == 0 {
		return nil, err
	}
	for ends := 0; ends < 2; { // one behind the descriptions of the columns, one behind the rows
		b, err := m.packet()
		if err != nil {
			return nil, err
		}
		switch {
		case b[0] == 0xfe && len(b) < 9:
			ends++
		case ends == 1:
			n := int(b[0])
			if n > 250 || n >= len(b) {
				return nil, fmt.Errorf("a value of %d bytes in a row of %d", n, len(b))
			}
			column = append(column, string(b[1:1+n]))
		}
	}
	return column, nil
}

func (m *mariadb) send(body []byte) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(body))|uint32(m.sequence)<<24)
	m.sequence++
	_, err := m.Write(append(b, body...))
	return err
}

// packet reads a packet that is not empty, or the error that it is.
func (m *mariadb) packet() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(m, head[:]); err != nil {
		return nil, err
	}
	m.sequence = head[3] + 1
	b := make([]byte, binary.LittleEndian.Uint32(head[:])&0xffffff)
	if _, err := io.ReadFull(m, b); err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, errors.New("an empty packet")
	}
	if b[0] != 0xff {
		return b, nil
	}
	if len(b) < 3 {
		return nil, fmt.Errorf("an error of %d bytes", len(b))
	}
	err := fmt.Errorf("%d: %q", binary.LittleEndian.Uint16(b[1:]), b[3:])
	if code := binary.LittleEndian.Uint16(b[1:]); code == 1047 { // ER_UNKNOWN_COM_ERROR: "WSREP has not yet prepared node for application use"
		err = fmt.Errorf("%w: %w", errStandby, err)
	}
	return nil, err
}
