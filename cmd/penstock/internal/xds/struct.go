package xds

import (
	"errors"
	"math"
	"unicode/utf8"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds of a google.protobuf.Struct.
const (
	maxDepth        = 64
	maxStructValues = 1 << 18
)

var (
	errDeep  = errors.New("nested too deeply")
	errLarge = errors.New("too many values")
	errUTF8  = errors.New("a text is not UTF-8")
)

// A structReader reads a google.protobuf.Struct as encoding/json reads an object.
type structReader struct{ values int }

// parseStruct reads a google.protobuf.Struct.
func parseStruct(b []byte) (map[string]any, error) { return new(structReader).object(b, 0) }

func (r *structReader) object(b []byte, depth int) (map[string]any, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	fields := map[string]any{}
	err := ads.EachField(b, func(n protowire.Number, v ads.RawValue) error {
		if n != 1 {
			return nil
		}
		key, value, err := parseEntry(v.Bytes)
		if err != nil {
			return err
		}
		fields[key], err = r.value(value, depth+1)
		return err
	})
	return fields, err
}

// parseEntry reads the entry of a map whose keys are texts.
func parseEntry(b []byte) (key string, value []byte, err error) {
	err = ads.EachField(b, func(n protowire.Number, v ads.RawValue) error {
		switch n {
		case 1:
			key = string(v.Bytes)
		case 2:
			value = v.Bytes
		}
		return nil
	})
	if err == nil && !utf8.ValidString(key) {
		err = errUTF8
	}
	return key, value, err
}

func (r *structReader) value(b []byte, depth int) (out any, err error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	if r.values++; r.values > maxStructValues {
		return nil, errLarge
	}
	err = ads.EachField(b, func(n protowire.Number, v ads.RawValue) error {
		var err error
		switch {
		case n == 1 && v.Kind == protowire.VarintType:
			out = nil
		case n == 2 && v.Kind == protowire.Fixed64Type:
			f := math.Float64frombits(v.Number)
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return errors.New("a number is not finite")
			}
			out = f
		case n == 3 && v.Kind == protowire.BytesType:
			if !utf8.Valid(v.Bytes) {
				return errUTF8
			}
			out = string(v.Bytes)
		case n == 4 && v.Kind == protowire.VarintType:
			out = v.Number != 0
		case n == 5 && v.Kind == protowire.BytesType:
			out, err = r.object(v.Bytes, depth+1)
		case n == 6 && v.Kind == protowire.BytesType:
			out, err = r.list(v.Bytes, depth+1)
		default:
			return ads.ErrWire
		}
		return err
	})
	return out, err
}

func (r *structReader) list(b []byte, depth int) ([]any, error) {
	list := []any{}
	err := ads.EachField(b, func(n protowire.Number, v ads.RawValue) error {
		if n != 1 {
			return nil
		}
		item, err := r.value(v.Bytes, depth+1)
		list = append(list, item)
		return err
	})
	return list, err
}
