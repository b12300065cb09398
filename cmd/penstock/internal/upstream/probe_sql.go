package upstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Checks of databases begin a session and send no password: that one is asked for, or that the user is refused, says that the server takes
// clients.

// postgresCheck begins a session, as pg_isready(1) does.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
func postgresCheck(conn net.Conn, c *spec.Check) error {
	b := binary.BigEndian.AppendUint32(nil, 3<<16) // the protocol's version
	b = append(append(append(b, "user\x00"...), c.User...), 0)
	if c.Database != "" {
		b = append(append(append(b, "database\x00"...), c.Database...), 0)
	}
	b = append(append(b, "application_name\x00penstock\x00"...), 0)
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b)+4)), b...)); err != nil {
		return err
	}
	var head [5]byte
	if err := readAnswer(conn, head[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(head[1:])) - 4
	if n < 0 || n > maxAnswer || head[0] != 'R' && head[0] != 'E' {
		return fmt.Errorf("the answer begins with %.40q, which is not PostgreSQL's", head[:])
	}
	b = make([]byte, n)
	if err := readAnswer(conn, b); err != nil {
		return err
	}
	if head[0] == 'R' {
		if len(b) < 4 {
			return fmt.Errorf("the answer %.40q asks for nothing, which is not PostgreSQL's", b)
		}
		if binary.BigEndian.Uint32(b) == 0 { // AuthenticationOk: the session has begun. Servers log those that end without a word
			conn.Write([]byte{'X', 0, 0, 0, 4}) // Terminate
			io.Copy(io.Discard, io.LimitReader(conn, maxAnswer))
		}
		return nil
	}
	code, message := postgresError(b)
	switch {
	case !isSQLState(code):
		return fmt.Errorf("the error %.40q has no code, which is not PostgreSQL's", b)
	case code[:2] == "28", code == "3D000": // who it is, or the database, is refused
		return nil
	}
	return fmt.Errorf("the server says %.100q (%s)", message, code)
}

// isSQLState reports whether a code is one of five digits and capital letters. PostgreSQL, "Error Codes".
func isSQLState(code string) bool {
	return len(code) == 5 && !strings.ContainsFunc(code, func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') })
}

// postgresError returns two of the fields of an ErrorResponse.
func postgresError(b []byte) (code, message string) {
	for len(b) > 1 && b[0] != 0 {
		field, rest, _ := bytes.Cut(b[1:], []byte{0})
		switch b[0] {
		case 'C':
			code = string(field)
		case 'M':
			message = string(field)
		}
		b = rest
	}
	return code, message
}

const (
	mysqlOK         = 0
	mysqlError      = 0xff
	mysqlMoreAsked  = 1    // AuthMoreData
	mysqlOtherAsked = 0xfe // AuthSwitchRequest

	mysqlMostAsked = 8 // passwords of one session

	// CLIENT_LONG_PASSWORD, CLIENT_PROTOCOL_41, CLIENT_SECURE_CONNECTION, CLIENT_PLUGIN_AUTH
	mysqlCapabilities = 1<<0 | 1<<9 | 1<<15 | 1<<19
)

// mysqlCheck reads the greeting, and answers it: of clients that end without an answer, a server counts how many, and then refuses the host
// (max_connect_errors). https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase.html
func mysqlCheck(conn net.Conn, c *spec.Check) error {
	greeting, _, err := mysqlPacket(conn)
	switch {
	case err != nil:
		return err
	case greeting[0] == mysqlError:
		return mysqlErrorOf(greeting)
	case greeting[0] != 10:
		return fmt.Errorf("the greeting is of version %d of MySQL's protocol; expected: 10", greeting[0])
	}
	b := binary.LittleEndian.AppendUint32(nil, mysqlCapabilities)
	b = binary.LittleEndian.AppendUint32(b, 1<<24) // the longest packet
	b = append(b, 45)                              // utf8mb4
	b = append(b, make([]byte, 23)...)
	b = append(append(b, c.User...), 0)
	b = append(b, 0) // an answer of no bytes: no password
	b = append(append(b, "mysql_native_password"...), 0)
	if _, err := conn.Write(append([]byte{byte(len(b)), byte(len(b) >> 8), 0, 1}, b...)); err != nil {
		return err
	}
	for range mysqlMostAsked {
		answer, number, err := mysqlPacket(conn)
		if err != nil {
			return err
		}
		switch answer[0] {
		case mysqlOK:
			conn.Write([]byte{1, 0, 0, 0, 1}) // COM_QUIT
			return nil
		case mysqlError:
			return mysqlErrorOf(answer)
		case mysqlMoreAsked, mysqlOtherAsked:
			// A password is asked for. An empty one ends the session well: the server says that the user is refused, and counts no error of the host.
			// MariaDB then asks for the next of several that a user may have.
			if _, err := conn.Write([]byte{0, 0, 0, number + 1}); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the answer to a session begins with %.40q, which is not MySQL's", answer)
		}
	}
	return errors.New("the server asks for passwords without end, which is not MySQL's")
}

// mysqlPacket reads a packet, which is not empty.
func mysqlPacket(conn net.Conn) (b []byte, number byte, err error) {
	var head [4]byte
	if err := readAnswer(conn, head[:]); err != nil {
		return nil, 0, err
	}
	n := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	if n == 0 || n > maxAnswer {
		return nil, 0, fmt.Errorf("the answer begins with %.40q, which is not MySQL's", head[:])
	}
	b = make([]byte, n)
	return b, head[3], readAnswer(conn, b)
}

// mysqlErrorOf returns the error of an ERR packet, or nil if it refuses the user: ER_DBACCESS_DENIED_ERROR, ER_ACCESS_DENIED_ERROR,
// ER_ACCESS_DENIED_NO_PASSWORD_ERROR, ER_NOT_SUPPORTED_AUTH_MODE; or ER_SECURE_TRANSPORT_REQUIRED, the session because it is not within TLS.
func mysqlErrorOf(b []byte) error {
	if len(b) < 3 {
		return errors.New("the error has no code, which is not MySQL's")
	}
	code, message := binary.LittleEndian.Uint16(b[1:]), b[3:]
	switch code {
	case 1044, 1045, 1698, 1251, 3159:
		return nil
	}
	if len(message) >= 6 && message[0] == '#' {
		message = message[6:] // SQLSTATE
	}
	return fmt.Errorf("the server says %.100q (%d)", message, code)
}

// readAnswer reads all of b.
func readAnswer(conn net.Conn, b []byte) error {
	switch n, err := io.ReadFull(conn, b); {
	case err == io.EOF:
		return errors.New("the member has ended the connection without an answer")
	case err == io.ErrUnexpectedEOF:
		return fmt.Errorf("the member has ended the connection; the answer ends with %.40q", b[:n])
	default:
		return err
	}
}
