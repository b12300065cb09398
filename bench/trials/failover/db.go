//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// db is a connection to a server of a cluster, one statement at a time.
type db interface {
	Close() error
	// start waits until the server takes statements, and returns the port that it says is its own.
	start() (port string, err error)
	// create creates what rows are written to.
	create() error
	// write writes a row. The error is errStandby if the server is not the primary.
	write(writer string, row int) error
	// rows returns the numbers of the rows of a writer.
	rows(writer string) ([]string, error)
	// ask returns what a statement returns: of rows, the first column.
	ask(statement string) ([]string, error)
}

// errStandby is returned when a server refuses a write because it is not the primary.
var errStandby = errors.New("refused: not the primary")

// conn is a connection on which no statement takes longer than within, unless that is 0.
type conn struct {
	net.Conn
	within time.Duration
}

func (c *conn) limit() {
	if c.within > 0 {
		c.SetDeadline(time.Now().Add(c.within))
	}
}

// dial connects to a server itself.
func (c *cluster) dial(m *member, within time.Duration) (db, error) {
	nc, err := net.DialTimeout("tcp", "127.0.0.1:"+m.port, within)
	if err != nil {
		return nil, err
	}
	server := c.connect(conn{nc, within})
	if _, err := server.start(); err != nil {
		server.Close()
		return nil, err
	}
	return server, nil
}

// ask asks a member one thing.
func (c *cluster) ask(m *member, statement string) (answer []string, err error) {
	server, err := c.dial(m, time.Second)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	return server.ask(statement)
}

// sql is a db that speaks SQL.
type sql struct {
	asker
	port string // the statement for it
}

type asker interface {
	Close() error
	login() error
	ask(statement string) ([]string, error)
}

func (s *sql) start() (string, error) {
	if err := s.login(); err != nil {
		return "", err
	}
	port, err := s.ask(s.port)
	if err == nil && len(port) != 1 {
		err = fmt.Errorf("the server's port is %q", port)
	}
	if err != nil {
		return "", err
	}
	return port[0], nil
}

func (s *sql) create() error {
	_, err := s.ask("CREATE TABLE acks (writer varchar(40), n int, PRIMARY KEY (writer, n))")
	return err
}

func (s *sql) write(writer string, row int) error {
	_, err := s.ask(fmt.Sprintf("INSERT INTO acks VALUES ('%s', %d)", writer, row))
	return err
}

func (s *sql) rows(writer string) ([]string, error) {
	return s.ask(fmt.Sprintf("SELECT n FROM acks WHERE writer = '%s'", writer))
}
