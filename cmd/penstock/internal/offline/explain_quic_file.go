package offline

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/quichello"
)

// quicClient is what the relay reads of the first datagrams of a client of QUIC, or what --cid says of it.
type quicClient struct {
	Version    string   `json:"version,omitempty"`
	ID         string   `json:"id,omitempty"`        // to which the first datagram is addressed, in hexadecimal digits, as far as its length is known
	Source     string   `json:"source_id,omitempty"` // of the client
	ServerName string   `json:"server_name,omitempty"`
	ALPN       []string `json:"alpn,omitempty"`

	steps []string
	begun []byte // what begins with the ID of a connection that has begun before; empty: it has not
	first []byte // the ID to which a client sends that begins
	wrong error  // what breaks the rules in the first datagram, which no server would take
	more  bool   // the ClientHello is not complete
}

const (
	maxQUICFile = 1 << 20
	maxDatagram = 65535 - 28 // of UDP over IPv4
)

// quicClient returns what --quic and --cid say of a client; nil: nothing.
func (c *Explain) quicClient() (*quicClient, error) {
	if c.QUIC == "" {
		id, err := hex.DecodeString(strings.TrimPrefix(c.CID, "0x"))
		switch {
		case err != nil:
			return nil, fmt.Errorf("--cid: %s does not consist of pairs of hexadecimal digits", c.CID)
		case len(id) > quicid.MaxLen:
			return nil, fmt.Errorf("--cid: %d bytes; a connection ID has at most %d", len(id), quicid.MaxLen)
		case len(id) == 0:
			return nil, nil
		}
		return &quicClient{begun: id}, nil
	}
	if c.CID != "" || c.SNI != "" || len(c.ALPN) > 0 {
		return nil, errors.New("--quic: the file says what --cid, --sni and --alpn would say; allowed: --quic without them")
	}
	f, err := os.Open(c.QUIC)
	if err != nil {
		return nil, fmt.Errorf("--quic: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxQUICFile+1))
	if err != nil {
		return nil, fmt.Errorf("--quic: %w", err)
	}
	datagrams, err := parseDatagrams(b)
	if err != nil {
		return nil, fmt.Errorf("--quic: %s: %w", c.QUIC, err)
	}
	return readQUIC(datagrams), nil
}

// parseDatagrams reads the payloads of UDP datagrams: one in each line, in hexadecimal digits, with or without colons between the bytes, or
// the bytes of one. Lines that are empty or begin with # are passed over.
func parseDatagrams(b []byte) (datagrams [][]byte, err error) {
	const allowed = "allowed: the bytes of one UDP payload, or several in hexadecimal digits, one in each line, as tshark -r FILE -T fields -e udp.payload prints them"
	if len(b) > maxQUICFile {
		return nil, fmt.Errorf("more than %d bytes; %s", maxQUICFile, allowed)
	}
	for _, magic := range []string{"\x0a\x0d\x0d\x0a", "\xd4\xc3\xb2\xa1", "\xa1\xb2\xc3\xd4", "\x4d\x3c\xb2\xa1", "\xa1\xb2\x3c\x4d"} {
		if bytes.HasPrefix(b, []byte(magic)) {
			return nil, fmt.Errorf("a capture of packets; %s", allowed)
		}
	}
	if bytes.ContainsFunc(b, func(r rune) bool { return r > unicode.MaxASCII || r < ' ' && r != '\n' && r != '\r' && r != '\t' }) {
		if len(b) > maxDatagram {
			return nil, fmt.Errorf("%d bytes, and a datagram has at most %d; %s", len(b), maxDatagram, allowed)
		}
		return [][]byte{b}, nil
	}
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		datagram, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(line, "0x"), ":", ""))
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d does not consist of pairs of hexadecimal digits; %s", i+1, allowed)
		case len(datagram) > maxDatagram:
			return nil, fmt.Errorf("line %d has %d bytes, and a datagram has at most %d", i+1, len(datagram), maxDatagram)
		case len(datagrams) == quichello.MaxDatagrams:
			return nil, fmt.Errorf("more than %d datagrams, which is all that the relay reads of a client that begins", quichello.MaxDatagrams)
		}
		datagrams = append(datagrams, datagram)
	}
	if len(datagrams) == 0 {
		return nil, fmt.Errorf("no datagram; %s", allowed)
	}
	return datagrams, nil
}

// readQUIC reads the first datagrams of a client as the relay does.
func readQUIC(datagrams [][]byte) *quicClient {
	q := &quicClient{}
	var hello quichello.Assembler
	for i, b := range datagrams {
		what := describeDatagram(b)
		if i == 0 && q.recognise(b) {
			q.steps = append(q.steps, fmt.Sprintf("datagram 1: %s", what))
			break
		}
		found, err := hello.Add(b)
		say := func(outcome string) {
			q.steps = append(q.steps, fmt.Sprintf("datagram %d: %s: %s", i+1, what, outcome))
		}
		q.more = false
		switch {
		case err == nil:
			q.ServerName, q.ALPN = found.ServerName, found.SupportedProtos
			say("the ClientHello is complete")
		case errors.Is(err, quichello.ErrIncomplete):
			q.more = true
			say(fmt.Sprintf("%d bytes of the ClientHello are there, and more is awaited", hello.Held()))
			continue
		case i == 0 && (errors.Is(err, quichello.ErrNotInitial) || errors.Is(err, quichello.ErrVersion)):
			say(err.Error() + ": the client has no name")
		case i == 0:
			q.wrong = err
			say(err.Error())
		default:
			q.more = true
			say(err.Error() + ": the datagram is dropped")
			continue
		}
		if left := len(datagrams) - i - 1; left > 0 {
			q.steps = append(q.steps, fmt.Sprintf("datagrams %d to %d: not read: it is known by then where the client goes", i+2, i+1+left))
		}
		break
	}
	return q
}

// recognise reads the header of a client's first datagram, and reports whether its connection has begun before.
func (q *quicClient) recognise(b []byte) bool {
	head, err := quichello.ParseHeader(b)
	if err != nil {
		return false
	}
	q.Version = quicid.VersionName(head.Version)
	switch head.Kind {
	case quichello.Short:
		q.begun = head.DestID
		return true
	case quichello.Handshake:
		q.begun = head.DestID
	case quichello.VersionNegotiation:
		return false
	default:
		q.first = head.DestID
	}
	q.ID, q.Source = hex.EncodeToString(head.DestID), hex.EncodeToString(head.SrcID)
	return len(q.begun) > 0
}

// describeDatagram says what everybody can read of a datagram.
func describeDatagram(b []byte) string {
	head, err := quichello.ParseHeader(b)
	size := fmt.Sprintf("%d bytes", len(b))
	switch {
	case err != nil:
		return size + ", not QUIC"
	case head.Kind == quichello.Short && head.Greased:
		return size + ", not QUIC, or of a client that hides that it is"
	case head.Kind == quichello.Short:
		return size + ", " + head.Kind.String() + ", of a connection that has begun before; only its server knows how long its ID is"
	}
	return fmt.Sprintf("%s, %v, version %s, to connection ID %s, from %s", size, head.Kind, quicid.VersionName(head.Version), shownID(head.DestID), shownID(head.SrcID))
}

func shownID(id []byte) string {
	if len(id) == 0 {
		return "(empty)"
	}
	return hex.EncodeToString(id)
}
