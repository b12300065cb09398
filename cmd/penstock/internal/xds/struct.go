package xds

import (
	"errors"
	"math"
	"unicode/utf8"

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
	err := eachField(b, func(n protowire.Number, v rawValue) error {
		if n != 1 {
			return nil
		}
		key, value, err := parseEntry(v.b)
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
	err = eachField(b, func(n protowire.Number, v rawValue) error {
		switch n {
		case 1:
			key = string(v.b)
		case 2:
			value = v.b
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
	err = eachField(b, func(n protowire.Number, v rawValue) error {
		var err error
		switch {
		case n == 1 && v.kind == protowire.VarintType:
			out = nil
		case n == 2 && v.kind == protowire.Fixed64Type:
			f := math.Float64frombits(v.n)
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return errors.New("a number is not finite")
			}
			out = f
		case n == 3 && v.kind == protowire.BytesType:
			if !utf8.Valid(v.b) {
				return errUTF8
			}
			out = string(v.b)
		case n == 4 && v.kind == protowire.VarintType:
			out = v.n != 0
		case n == 5 && v.kind == protowire.BytesType:
			out, err = r.object(v.b, depth+1)
		case n == 6 && v.kind == protowire.BytesType:
			out, err = r.list(v.b, depth+1)
		default:
			return errWire
		}
		return err
	})
	return out, err
}

func (r *structReader) list(b []byte, depth int) ([]any, error) {
	list := []any{}
	err := eachField(b, func(n protowire.Number, v rawValue) error {
		if n != 1 {
			return nil
		}
		item, err := r.value(v.b, depth+1)
		list = append(list, item)
		return err
	})
	return list, err
}
