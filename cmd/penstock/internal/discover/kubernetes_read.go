package discover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

type listMeta struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"`
}

// readList reads an EndpointSliceList, and calls each with one slice after the other, so that no more than one is in
// memory.
func readList(r io.Reader, each func(*endpointSlice) error) (meta listMeta, err error) {
	item := &remote.BoundedReader{R: r, Left: maxKubeObject}
	d := json.NewDecoder(item)
	isList := false
	err = readObject(d, func(key string) error {
		item.Left = maxKubeObject
		switch key {
		case "kind":
			var kind string
			if err := d.Decode(&kind); err != nil {
				return err
			}
			if isList = kind == "EndpointSliceList"; !isList {
				return fmt.Errorf("the answer is of kind %q", text(kind, 40))
			}
			return nil
		case "metadata":
			return d.Decode(&meta)
		case "items":
			return readArray(d, func() error {
				item.Left = maxKubeObject
				var s endpointSlice
				if err := d.Decode(&s); err != nil {
					return err
				}
				return each(&s)
			})
		}
		return skip(d)
	})
	if err == nil && !isList {
		err = errors.New("the answer is no EndpointSliceList")
	}
	return meta, unexpected(err)
}

// readObject reads the beginning of an object, calls each for every key to read its value, and reads the end.
func readObject(d *json.Decoder, each func(key string) error) error {
	if t, err := d.Token(); err != nil {
		return err
	} else if t != json.Delim('{') {
		return errors.New("the answer is no JSON object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return errors.New("the answer is not valid JSON")
		}
		if err := each(key); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// readArray reads an array, or null: it calls each for every element to read it.
func readArray(d *json.Decoder, each func() error) error {
	if t, err := d.Token(); err != nil || t == nil {
		return err
	} else if t != json.Delim('[') {
		return errors.New("the answer has no JSON array where one belongs")
	}
	for d.More() {
		if err := each(); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// skip reads the next value.
func skip(d *json.Decoder) error {
	var v json.RawMessage
	return d.Decode(&v)
}

// unexpected turns the end of an answer in its middle, which package json returns as io.EOF between tokens, into an error
// that says so.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A watchEvent is an event of a watch: its object is an EndpointSlice or, with type ERROR, a Status.
type watchEvent struct {
	Type   string `json:"type"`
	Object struct {
		endpointSlice
		Code    int    `json:"code"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"object"`
}

// An eventReader reads the events of a watch, each a JSON object.
type eventReader struct{ d *json.Decoder }

func newEventReader(r io.Reader) eventReader { return eventReader{json.NewDecoder(r)} }

// next returns the next event; the error is io.EOF if the answer ends between two.
func (r eventReader) next() (e watchEvent, err error) {
	err = r.d.Decode(&e)
	return e, err
}
