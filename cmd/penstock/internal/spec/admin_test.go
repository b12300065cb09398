package spec

import "testing"

func TestAdminCommands(t *testing.T) {
	tcp, other, unix := Endpoint{Kind: TCP, Port: 1}, Endpoint{Kind: TCP, Port: 2}, Endpoint{Kind: Unix, Path: "/s"}
	for _, c := range []struct {
		list []Endpoint
		want Endpoint
	}{
		{nil, Endpoint{}},
		{[]Endpoint{tcp, other}, tcp},
		{[]Endpoint{unix, tcp}, unix},
		{[]Endpoint{tcp, unix, {Kind: Unix, Path: "/t"}}, unix},
	} {
		a := Admin{Listen: c.list}
		if at, ok := a.Commands(); at != c.want || ok != (c.list != nil) {
			t.Errorf("%v: %v, %v", c.list, at, ok)
		}
	}
}
