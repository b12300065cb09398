package etcd

import (
	"context"
	"encoding/json"
	"io"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// A stream reads the messages of a watch from the body of an answer.
type stream struct {
	bounded  *remote.BoundedReader
	decoder  *json.Decoder
	most     int64
	messages chan watchMessage // closed when the reader has ended
	err      error             // why it ended; to be read after messages is closed
}

func newStream(body io.Reader, most int64) *stream {
	b := &remote.BoundedReader{R: body}
	return &stream{bounded: b, decoder: json.NewDecoder(b), most: most, messages: make(chan watchMessage)}
}

// read passes messages on until the body ends, one of them is wrong, or ctx ends.
func (s *stream) read(ctx context.Context) {
	defer close(s.messages)
	for {
		var m watchMessage
		if m, s.err = s.next(); s.err != nil {
			return
		}
		select {
		case s.messages <- m:
		case <-ctx.Done():
			s.err = ctx.Err()
			return
		}
	}
}

// next reads one message. What has been read ahead of it is smaller than the decoder's buffer, so that memory
// stays within a small multiple of most.
func (s *stream) next() (m watchMessage, err error) {
	s.bounded.Left = s.most
	err = s.decoder.Decode(&m)
	return m, err
}
