package app

import (
	"reflect"
	"testing"

	"github.com/penstock/penstock/relay/stats"
)

// No field that the API shows of a socket is left zero.
func TestTCPInfo(t *testing.T) {
	var in stats.TCPInfo
	v := reflect.ValueOf(&in).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		default:
			f.SetInt(int64(i + 1))
		}
	}
	out := reflect.ValueOf(tcpInfo(&in)).Elem()
	for i := range out.NumField() {
		if out.Field(i).IsZero() {
			t.Errorf("%s is not filled in", out.Type().Field(i).Name)
		}
	}
}
