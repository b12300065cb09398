package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// printFields prints the fields of the messages whose names it is given, or reads from standard input: what
// cmd/penstock/internal/xds/testdata/fields.txt has, with which the tables there are compared.
func printFields(names []string) error {
	if len(names) == 0 {
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			names = append(names, strings.Fields(s.Text())...)
		}
	}
	for _, name := range names {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m, ok := d.(protoreflect.MessageDescriptor)
		if !ok {
			return fmt.Errorf("%s is not a message", name)
		}
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			kind := f.Kind().String()
			if f.Message() != nil {
				kind = string(f.Message().FullName())
			}
			if f.IsList() {
				kind = "repeated " + kind
			}
			if f.IsMap() {
				kind = "map"
			}
			fmt.Println(name, f.Number(), f.Name(), kind)
		}
		if m.Fields().Len() == 0 {
			fmt.Println(name)
		}
	}
	return nil
}
