package quichello_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/penstock/penstock/quichello"
)

// A relay keeps an Assembler for each client whose connection begins, by address and connection ID, and
// the datagrams, which it forwards in their order once it knows where to.
func ExampleAssembler() {
	text, err := os.ReadFile("testdata/rfc9001-a2.hex") // the first datagram of a client, from RFC 9001
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		fmt.Println(err)
		return
	}
	var a quichello.Assembler
	for _, datagram := range [][]byte{[]byte("\x12\x34\x01\x00\x00\x01"), first} {
		hello, err := a.Add(datagram)
		switch {
		case errors.Is(err, quichello.ErrIncomplete):
			fmt.Println("keep the datagram, and wait for the next one")
		case errors.Is(err, quichello.ErrNotInitial), errors.Is(err, quichello.ErrVersion):
			fmt.Println("the default upstream:", err)
		case err != nil:
			fmt.Println("drop:", err)
		default:
			fmt.Printf("version %d, ID %x: a client for %s with %v\n", a.Version(), a.ID(), hello.ServerName, hello.SupportedProtos)
		}
	}
	// Output:
	// the default upstream: no Initial packet of QUIC
	// version 1, ID 8394c8f03e515708: a client for example.com with [alpn]
}

// The header tells connections from each other, and what they are.
func ExampleParseHeader() {
	for _, datagram := range []string{
		"\xc0\x00\x00\x00\x01\x08\x83\x94\xc8\xf0\x3e\x51\x57\x08\x00\x00", "\xc0\xff\x00\x00\x1d\x01\xaa\x00", "\x43\x83\x94\xc8\xf0\x3e\x51\x57\x08\x01", "\x80\x34\x01\x00",
	} {
		h, err := quichello.ParseHeader([]byte(datagram))
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%v, version %#x, to %x\n", h.Kind, h.Version, h.DestID)
	}
	// Output:
	// Initial, version 0x1, to 8394c8f03e515708
	// unknown version, version 0xff00001d, to aa
	// short header, version 0x0, to 8394c8f03e51570801
	// not a QUIC packet
}
