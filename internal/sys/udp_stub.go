//go:build !linux

package sys

import "errors"

// MsgTrunc is MSG_TRUNC of the BSDs and of Darwin: the datagram was longer than the buffer.
const MsgTrunc = 0x10

// ProbeGSO reports that UDP_SEGMENT is not supported.
func ProbeGSO() error { return errors.ErrUnsupported }

// ProbeGRO reports that UDP_GRO is not supported.
func ProbeGRO() error { return errors.ErrUnsupported }

// CopyControl copies nothing, because no control messages are received.
func CopyControl(_, src []byte) (n int, whole bool) { return 0, len(src) == 0 }
