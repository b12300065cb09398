package tlsconn

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"reflect"
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

// A connection can be given to the kernel after its handshake: its traffic secrets, and the sequence numbers of its next records.
// crypto/tls tells the secrets to a KeyLogWriter. It does not tell the numbers, but all records go through here: of those that are
// encrypted with the traffic secrets none is read in the handshake, and a server writes one for each ticket.
//
// What must not be missed is a KeyUpdate (RFC 8446, 4.6.3): from then on there are other secrets. It is encrypted like any record, but
// neither does it have anything for the reader nor is it a ticket that the client keeps. A connection that has received a record of that
// kind is never given away.

// giving is what a connection keeps so that it can be given to the kernel.
type giving struct {
	client     bool
	secret     [2][]byte              // ours and the peer's; nil: not known
	sent, read uint64                 // records that were encrypted with them
	open       bool                   // the last record that was read had nothing for the reader, as far as is known
	doubt      bool                   // there was such a record, or a ticket too large for one record
	careful    bool                   // no byte of the next record is received with one
	left       bool                   // crypto/tls may have something for the reader
	cache      tls.ClientSessionCache // of the configuration
}

// The labels of the secrets in a key log, by whose they are: client, server. draft-ietf-tls-keylogfile-05.
var keyLogLabels = [2][]byte{[]byte("CLIENT_TRAFFIC_SECRET_0 "), []byte("SERVER_TRAFFIC_SECRET_0 ")}

// Write implements [io.Writer]. A line is a label, the client's random, and a secret.
func (g *giving) Write(line []byte) (int, error) {
	for whose, label := range keyLogLabels {
		if !bytes.HasPrefix(line, label) {
			continue
		}
		text := bytes.TrimSpace(line[bytes.LastIndexByte(line, ' ')+1:])
		secret := make([]byte, hex.DecodedLen(len(text)))
		if _, err := hex.Decode(secret, text); err != nil {
			secret = nil
		}
		if g.client == (whose == 0) {
			g.secret[0] = secret
		} else {
			g.secret[1] = secret
		}
	}
	return len(line), nil
}

// server returns a configuration for one server's end. The tickets are those of cfg.
func (g *giving) server(cfg *tls.Config) *tls.Config {
	own := cfg.Clone()
	own.KeyLogWriter = g.log(cfg)
	wrap := cfg.WrapSession
	if wrap == nil {
		wrap = cfg.EncryptTicket
	}
	own.WrapSession = func(state tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
		ticket, err := wrap(state, s)
		g.sent++
		g.doubt = g.doubt || len(ticket) > recordSize-1024
		return ticket, err
	}
	if own.UnwrapSession == nil {
		own.UnwrapSession = cfg.DecryptTicket
	}
	if chosen := cfg.GetConfigForClient; chosen != nil {
		own.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := chosen(hello)
			if c == nil || err != nil {
				return nil, err
			}
			return g.server(c), nil
		}
	}
	return own
}

// forClient returns a configuration for one client's end.
func (g *giving) forClient(cfg *tls.Config) *tls.Config {
	own := cfg.Clone()
	own.KeyLogWriter = g.log(cfg)
	if cfg.ClientSessionCache != nil {
		g.cache = cfg.ClientSessionCache
		own.ClientSessionCache = g
	}
	return own
}

// log returns where the key log of a connection goes.
func (g *giving) log(cfg *tls.Config) writers {
	if m, ok := cfg.KeyLogWriter.(Marked); ok {
		return writers{g, m}
	}
	return writers{g, Marked{cfg.KeyLogWriter}}
}

// writers writes to both.
type writers struct {
	g    *giving
	next Marked
}

func (w writers) Write(p []byte) (int, error) {
	w.g.Write(p)
	// crypto/tls makes a line with fmt, which keeps the buffer that it used, with the line in it, for whoever formats something next: that is done here.
	defer fmt.Fprintf(io.Discard, "%s", make([]byte, len(p)))
	if w.next.Next == nil {
		clear(p) // crypto/tls does not use it any more, and would leave the secret in it
		return len(p), nil
	}
	return w.next.Write(p)
}

// Get implements [tls.ClientSessionCache].
func (g *giving) Get(key string) (*tls.ClientSessionState, bool) { return g.cache.Get(key) }

// Put implements [tls.ClientSessionCache]. The record that was read last was a ticket.
func (g *giving) Put(key string, s *tls.ClientSessionState) {
	g.open = false
	g.cache.Put(key, s)
}

// wrote counts the records that p has, which are whole.
func (g *giving) wrote(p []byte) {
	for len(p) >= 5 {
		if p[0] == sys.RecordData {
			g.sent++
		}
		p = p[min(len(p), 5+int(binary.BigEndian.Uint16(p[3:]))):]
	}
}

// ends counts a record that was read.
func (g *giving) ends(kind byte) {
	if kind == sys.RecordData {
		g.read++
		g.open = true
	}
}

// took notes what the reader has got, of n bytes that it had room for.
func (g *giving) took(m, n int) {
	if m > 0 {
		g.open = false
	}
	g.left = m > 0 && m == n
}

// reading is called before a record is read.
func (g *giving) reading() {
	g.doubt = g.doubt || g.open
	g.open = false
}

// wipe forgets the secrets.
func (g *giving) wipe() {
	clear(g.secret[0])
	clear(g.secret[1])
	g.secret = [2][]byte{}
}

// field returns a field of a struct, or of what a pointer or an interface leads to; the zero Value if there is none of that name.
func field(v reflect.Value, name string) reflect.Value {
	if v = led(v); v.Kind() == reflect.Struct {
		return v.FieldByName(name)
	}
	return reflect.Value{}
}

func led(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}

// halves are the fields of tls.Conn that have the keys of what is sent and of what is received.
var halves = [2]string{"out", "in"}

// trafficSecret returns the secret that crypto/tls uses now, for one of the halves. It has no call for that: nil says that this release of Go has no
// field of that name, which TestGivenIsWiped tells.
func trafficSecret(c *tls.Conn, half string) []byte {
	if secret := field(field(reflect.ValueOf(c), half), "trafficSecret"); secret.Kind() == reflect.Slice {
		return secret.Bytes()
	}
	return nil
}

// wipe overwrites what crypto/tls has of the keys of a connection, which must not be used any more.
func wipe(c *tls.Conn) {
	for _, half := range halves {
		clear(trafficSecret(c, half))
		cipher := field(field(reflect.ValueOf(c), half), "cipher") // *xorNonceAEAD
		sys.Wipe(field(cipher, "nonceMask"))
		sys.Wipe(led(field(cipher, "aead")))
	}
}

// keys returns the keys of one direction. RFC 8446, 7.3.
func keys(suite uint16, secret []byte, next uint64) (k sys.TLSKeys, ok bool) {
	size, hashed := 32, func() hash.Hash { return sha256.New() }
	switch suite {
	case tls.TLS_AES_128_GCM_SHA256:
		size = 16
	case tls.TLS_AES_256_GCM_SHA384:
		hashed = sha512.New384
	case tls.TLS_CHACHA20_POLY1305_SHA256:
	default:
		return k, false
	}
	if len(secret) != hashed().Size() {
		return k, false
	}
	k.Suite, k.Next = suite, next
	key, err := hkdf.Expand(hashed, secret, label("key", size), size)
	iv, err2 := hkdf.Expand(hashed, secret, label("iv", len(k.IV)), len(k.IV))
	if err != nil || err2 != nil {
		return k, false
	}
	k.Key = key
	copy(k.IV[:], iv)
	clear(iv)
	return k, true
}

// label returns the info of HKDF-Expand-Label with an empty context. RFC 8446, 7.1.
func label(name string, n int) string {
	full := "tls13 " + name
	return string(slices.Concat([]byte{byte(n >> 8), byte(n), byte(len(full))}, []byte(full), []byte{0}))
}
