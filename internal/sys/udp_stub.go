//go:build !linux

package sys

import "errors"

// MsgTrunc is MSG_TRUNC of the BSDs and of Darwin: the datagram was longer than the buffer.
const MsgTrunc = 0x10

// ProbeGSO answers that there is no UDP_SEGMENT.
func ProbeGSO() error { return errors.ErrUnsupported }

// ProbeGRO answers that there is no UDP_GRO.
func ProbeGRO() error { return errors.ErrUnsupported }

// CopyControl has nothing to copy: no control messages are received.
func CopyControl(_, src []byte) (n int, whole bool) { return 0, len(src) == 0 }
