package xds

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"google.golang.org/protobuf/encoding/protowire"
)

// A Problem is something in a resource that is wrong, or that is not done.
type Problem struct {
	Path string // of the field; empty: the resource as a whole
	Text string
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Text
	}
	return p.Path + ": " + p.Text
}

// A decoder reads one resource by the tables. Errors and warnings are collected, so that all of them
// are told at once.
type decoder struct {
	errs, warnings []Problem
	values         int
}

// Bounds of one resource.
const (
	maxValues   = 1 << 20
	maxProblems = 50
)

// An object is a decoded message: the fields that are done and have a value, in their order.
type object struct {
	d      *decoder
	of     *message
	up     *object
	as     *field // what it is in up
	index  int    // among the values of as
	values []value
}

// A value is that of a field: a number, a text or bytes, or a message.
type value struct {
	f      *field
	n      uint64
	b      []byte
	object *object
}

// decode reads a message. The result has what could be read, even if there are errors.
func (d *decoder) decode(m *message, b []byte) *object { return d.message(m, b, nil, nil, 0) }

func (d *decoder) message(m *message, b []byte, up *object, as *field, index int) *object {
	o := &object{d: d, of: m, up: up, as: as, index: index}
	err := ads.EachField(b, func(n protowire.Number, raw ads.RawValue) error {
		if d.values++; d.values > maxValues {
			return fmt.Errorf("more than %d values", maxValues)
		}
		f := m.field(n)
		if f == nil && len(d.warnings) >= maxProblems {
			return nil // its path costs more than it
		}
		if f == nil {
			d.warn(o.path(""), "unknown field "+strconv.Itoa(int(n))+" is ignored")
			return nil
		}
		if f.kind == numberKind && raw.Kind == protowire.BytesType && f.outcome == done {
			return d.packed(o, f, raw.Bytes) // numbers of a list
		}
		v, set, err := d.value(f, raw, o)
		switch {
		case err != nil:
			d.fail(o.path(f.name), err.Error())
		case f.outcome == done:
			o.put(v)
		case !set || f.outcome == silent:
		case f.outcome == ignored:
			d.warn(o.path(f.name), "ignored: "+f.doc)
		default:
			d.fail(o.path(f.name), "not supported: "+f.doc)
		}
		return nil
	})
	if err != nil {
		d.fail(o.path(""), err.Error())
	}
	return o
}

// value reads a value. set is whether it is other than the default.
func (d *decoder) value(f *field, raw ads.RawValue, in *object) (v value, set bool, err error) {
	v.f = f
	bytes := f.kind != numberKind && f.kind != otherKind
	if bytes != (raw.Kind == protowire.BytesType) && f.kind != otherKind {
		if f.kind == numberKind && f.outcome != done { // a list of numbers
			return v, true, nil
		}
		return v, false, ads.ErrWire
	}
	switch f.kind {
	case textKind:
		v.b, set = raw.Bytes, len(raw.Bytes) > 0
	case numberKind:
		v.n, set = raw.Number, raw.Number != 0
	case wrappedKind:
		v.n, err = number(raw.Bytes)
		set = v.n != 0
	case percentKind:
		v.n, err = number(raw.Bytes)
		set = v.n != 0
	case durationKind:
		var t time.Duration
		t, err = ads.ParseDuration(raw.Bytes)
		if err == nil && t < 0 {
			err = fmt.Errorf("%v is negative", t)
		}
		v.n, set = uint64(t), t != 0
	case messageKind:
		switch {
		case f.of == &endpointTable: // decoded later, if it is not known: see endpointCache
			v.b = raw.Bytes
		case f.outcome == done:
			v.object = d.message(f.of, raw.Bytes, in, f, in.count(f))
		}
		set = true
	case anyKind, rawKind:
		v.b, set = raw.Bytes, true
	case otherKind:
		set = raw.Kind == protowire.BytesType || raw.Number != 0
	}
	return v, set, err
}

// number reads the number of a wrapper: its field 1.
func number(b []byte) (n uint64, err error) {
	err = ads.EachField(b, func(number protowire.Number, v ads.RawValue) error {
		if number == 1 {
			if v.Kind == protowire.BytesType {
				return ads.ErrWire
			}
			n = v.Number
		}
		return nil
	})
	return n, err
}

func (d *decoder) packed(o *object, f *field, b []byte) error {
	for len(b) > 0 {
		n, size := protowire.ConsumeVarint(b)
		if d.values++; size < 0 || d.values > maxValues {
			return ads.ErrWire
		}
		o.values = append(o.values, value{f: f, n: n})
		b = b[size:]
	}
	return nil
}

// put adds a value.
func (o *object) put(v value) { o.values = append(o.values, v) }

func (o *object) count(f *field) (n int) {
	for i := len(o.values) - 1; i >= 0; i-- {
		// The values of a list are next to each other, or nearly so.
		if o.values[i].f == f && o.values[i].object != nil {
			return o.values[i].object.index + 1
		}
	}
	return 0
}

// path returns the path of a field of o, such as filter_chains[0].filters[0].typed_config.cluster; of
// o itself if name is empty.
func (o *object) path(name string) string {
	var parts []string
	if name != "" {
		parts = append(parts, name)
	}
	for ; o != nil && o.up != nil; o = o.up {
		part := o.as.name
		if o.as.kind == messageKind && o.up.listed(o.as) {
			part += "[" + strconv.Itoa(o.index) + "]"
		}
		parts = append(parts, part)
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".")
}

// listed reports whether a field is a list: names of lists are plurals, but for a few.
func (o *object) listed(f *field) bool {
	switch f.name {
	case "load_balancer_endpoints", "circuit_breakers", "pass_through_tlvs", "upstream_connection_options", "weighted_clusters":
		return false
	case "receive":
		return true
	}
	return strings.HasSuffix(f.name, "s") && !strings.HasSuffix(f.name, "address") || strings.HasSuffix(f.name, "addresses") || f.name == "hash_policy"
}

func (d *decoder) fail(path, text string) {
	if len(d.errs) < maxProblems {
		d.errs = append(d.errs, Problem{path, text})
	}
}

func (d *decoder) warn(path, text string) {
	if len(d.warnings) < maxProblems {
		d.warnings = append(d.warnings, Problem{path, text})
	}
}

// fail reports an error of a field of o; of o itself if name is empty.
func (o *object) fail(name, format string, args ...any) {
	o.d.fail(o.path(name), fmt.Sprintf(format, args...))
}

func (o *object) warn(name, format string, args ...any) {
	o.d.warn(o.path(name), fmt.Sprintf(format, args...))
}

// last returns the last value of a field: of several, protobuf takes the last.
func (o *object) last(name string) (value, bool) {
	if o == nil {
		return value{}, false
	}
	for i := len(o.values) - 1; i >= 0; i-- {
		if o.values[i].f.name == name {
			return o.values[i], true
		}
	}
	return value{}, false
}

func (o *object) has(name string) bool {
	_, ok := o.last(name)
	return ok
}

// text returns a text. One that is no text, or too long, is an error.
func (o *object) text(name string) string {
	v, _ := o.last(name)
	return o.valid(name, v.b)
}

func (o *object) valid(name string, b []byte) string {
	if len(b) > ads.MaxName || !utf8.Valid(b) {
		o.fail(name, "not a text of at most %d bytes", ads.MaxName)
		return ""
	}
	return string(b)
}

func (o *object) bytes(name string) []byte {
	v, _ := o.last(name)
	return v.b
}

// texts returns the texts of a list.
func (o *object) texts(name string) (list []string) {
	if o == nil {
		return nil
	}
	for _, v := range o.values {
		if v.f.name == name {
			list = append(list, o.valid(name, v.b))
		}
	}
	return list
}

// number returns a number, and whether it is set.
func (o *object) number(name string) (uint64, bool) {
	v, ok := o.last(name)
	return v.n, ok
}

// numberOr returns a number, or def if it is not set.
func (o *object) numberOr(name string, def uint64) uint64 {
	if n, ok := o.number(name); ok {
		return n
	}
	return def
}

func (o *object) flag(name string) bool {
	n, _ := o.number(name)
	return n != 0
}

func (o *object) numbers(name string) (list []uint64) {
	for _, v := range o.values {
		if v.f.name == name {
			list = append(list, v.n)
		}
	}
	return list
}

// duration returns a duration, or def if it is not set.
func (o *object) duration(name string, def time.Duration) time.Duration {
	if v, ok := o.last(name); ok {
		return time.Duration(v.n)
	}
	return def
}

// percent returns a share of 0 to 1, or def if it is not set.
func (o *object) percent(name string, def float64) float64 {
	v, ok := o.last(name)
	if !ok {
		return def
	}
	f := math.Float64frombits(v.n) / 100
	if !(f >= 0 && f <= 1) {
		o.fail(name, "not a percentage")
		return def
	}
	return f
}

// object returns a message, nil if it is not set. All methods that read take a nil object as empty.
func (o *object) object(name string) *object {
	v, _ := o.last(name)
	return v.object
}

func (o *object) objects(name string) (list []*object) {
	if o == nil {
		return nil
	}
	for _, v := range o.values {
		if v.f.name == name && v.object != nil {
			list = append(list, v.object)
		}
	}
	return list
}

// open decodes the message in an Any, by the table that its type has among those given. Without one,
// it is an error, and the result nil.
func (o *object) open(name string, tables ...*message) *object {
	v, ok := o.last(name)
	if !ok {
		o.fail(name, "missing")
		return nil
	}
	url, b, err := ads.ParseAny(v.b)
	if err != nil {
		o.fail(name, "%v", err)
		return nil
	}
	kind := url[strings.LastIndexByte(url, '/')+1:]
	for _, m := range tables {
		if m.name == kind {
			return o.d.message(m, b, o, v.f, 0)
		}
	}
	names := make([]string, len(tables))
	for i, m := range tables {
		names[i] = m.name
	}
	o.fail(name, "%s is not supported; allowed: %s", ads.OneLine(kind), strings.Join(names, ", "))
	return nil
}
