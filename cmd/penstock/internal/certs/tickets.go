package certs

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"slices"
)

// Bounds of a file of keys for tickets.
const (
	maxTicketKeys = 16
	minTicketKey  = 32
	maxTicketKey  = 256
)

// parseTickets returns the keys of a file: one on each line, in base64. Lines that are empty or begin with # are ignored. The first key
// encrypts, the others only decrypt.
func parseTickets(text []byte) (keys [][32]byte, err *lineError) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, bad := base64.StdEncoding.DecodeString(string(line))
		switch {
		case bad != nil:
			return nil, lineErrorf(number, "this is not base64; allowed: a key on each line, as openssl rand -base64 48 writes it")
		case len(key) < minTicketKey || len(key) > maxTicketKey:
			return nil, lineErrorf(number, "a key of %d bytes; allowed: %d to %d", len(key), minTicketKey, maxTicketKey)
		case len(keys) == maxTicketKeys:
			return nil, lineErrorf(number, "there are more than %d keys", maxTicketKeys)
		}
		derived, bad := hkdf.Key(sha256.New, key, nil, "penstock tickets", 32)
		if bad != nil {
			return nil, lineErrorf(number, "the key cannot be used: %v", bad)
		}
		if slices.Contains(keys, [32]byte(derived)) {
			return nil, lineErrorf(number, "this key is there already")
		}
		keys = append(keys, [32]byte(derived))
	}
	if len(keys) == 0 {
		return nil, &lineError{0, "there is no key in it; allowed: a key on each line, as openssl rand -base64 48 writes it"}
	}
	return keys, nil
}

// tickets makes the tickets of a listener, and reads those of clients. It outlives changes of certificates and of the configuration.
type tickets struct {
	// keys has the keys, and makes new ones every day if they are not from a file: those of a tls.Config that has none.
	keys  tls.Config
	file  string
	stamp stamp
	have  [][32]byte
}

func newTickets(file string) *tickets { return &tickets{file: file} }

// load reads the file. If that fails, the keys stay as they are.
func (t *tickets) load(o *Options) (fresh bool, problems Problems) {
	text, s, err := o.read(t.file, maxTickets)
	t.stamp = s
	if err != nil {
		return false, Problems{failed(t.file, err)}
	}
	keys, bad := parseTickets(text)
	if bad != nil {
		return false, Problems{bad.inFile(t.file)}
	}
	if slices.Equal(keys, t.have) {
		return false, nil
	}
	t.keys.SetSessionTicketKeys(keys)
	t.have = keys
	return true, nil
}

// use makes a configuration issue tickets with these keys. A ticket is bound to the server name: RFC 6066, section 3, and a client that may
// resume under another name could pass by what that name refuses.
func (t *tickets) use(c *tls.Config) {
	c.WrapSession = func(state tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
		s.Extra = append(slices.DeleteFunc(s.Extra, isName), append([]byte(nameMark), state.ServerName...))
		return t.keys.EncryptTicket(state, s)
	}
	c.UnwrapSession = func(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
		s, err := t.keys.DecryptTicket(ticket, state)
		if s == nil || err != nil {
			return nil, err
		}
		i := slices.IndexFunc(s.Extra, isName)
		if i < 0 || string(s.Extra[i][len(nameMark):]) != state.ServerName {
			return nil, nil // a handshake without a ticket
		}
		return s, nil
	}
}

// nameMark is in front of the server name in a ticket.
const nameMark = "penstock name "

func isName(b []byte) bool { return bytes.HasPrefix(b, []byte(nameMark)) }
