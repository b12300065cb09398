//go:build linux

package pattern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A datagram has a header and bytes of its flow's pattern:
//
//	0  magic
//	8  flow
//	16 number of the datagram, from 1
//	24 direction
//	28 CRC-32 of the bytes before
//
// DatagramHeader is the length of that header.
const DatagramHeader = 32

var datagramMagic = [8]byte{'c', 'h', 'a', 'o', 's', 0xfe, 0, '\n'}

// MakeDatagram fills b, and returns it.
func MakeDatagram(b []byte, flow, number uint64, d Direction) []byte {
	copy(b, datagramMagic[:])
	binary.LittleEndian.PutUint64(b[8:], flow)
	binary.LittleEndian.PutUint64(b[16:], number)
	binary.LittleEndian.PutUint32(b[24:], uint32(d))
	binary.LittleEndian.PutUint32(b[28:], crc32.ChecksumIEEE(b[:28]))
	Fill(b[DatagramHeader:], flow, d, int64(number)*2048)
	return b
}

// ErrDatagram is returned for a datagram with a wrong byte.
var ErrDatagram = errors.New("wrong datagram")

// ReadDatagram returns what a datagram says of itself; every byte has been checked.
func ReadDatagram(b []byte) (flow, number uint64, d Direction, err error) {
	if len(b) < DatagramHeader || [8]byte(b[:8]) != datagramMagic || binary.LittleEndian.Uint32(b[28:]) != crc32.ChecksumIEEE(b[:28]) {
		return 0, 0, 0, fmt.Errorf("%w: %d bytes: % x", ErrDatagram, len(b), b[:min(len(b), DatagramHeader)])
	}
	flow, number = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	d = Direction(binary.LittleEndian.Uint32(b[24:]))
	var scratch [2048]byte
	if _, wrong := Compare(b[DatagramHeader:], scratch[:], flow, d, int64(number)*2048); wrong != nil {
		return flow, number, d, fmt.Errorf("%w: %d of flow %d, %v: %s", ErrDatagram, number, flow, d, wrong.Text)
	}
	return flow, number, d, nil
}
