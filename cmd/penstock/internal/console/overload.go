package console

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// highPressure is the pressure from which a resource is worth a line.
const highPressure = 0.8

// overloadPairs returns a line for each resource that is short, and one for what is done about it.
func overloadPairs(o *api.Overload) (list [][2]string) {
	add := func(text string) {
		name := ""
		if len(list) == 0 {
			name = "overload"
		}
		list = append(list, [2]string{name, printable(text)})
	}
	for i := range o.Resources {
		if r := &o.Resources[i]; r.Pressure >= highPressure || r.Error != "" || actsOn(o, r.Name) {
			add(pressureText(r))
		}
	}
	for i := range o.Actions {
		if a := &o.Actions[i]; a.Active {
			add(fmt.Sprintf("%s: active at %s of %s, %s so far", a.Name, percent(a.Threshold), a.Resource, count(a.Count)))
		}
	}
	return list
}

// pressureText tells how much of a resource is used.
func pressureText(r *api.OverloadResource) string {
	use, limit := count(r.Use), count(r.Limit)
	if r.Name == "memory" {
		use, limit = volume(float64(r.Use)), volume(float64(r.Limit))
	}
	text := fmt.Sprintf("%s: %s of %s (%s)", r.Name, use, limit, percent(r.Pressure))
	if r.Source != "" {
		text += ", limited by " + r.Source
	}
	if r.Error != "" {
		text += "; " + r.Error
	}
	return text
}

// actsOn reports whether an action of a resource is active.
func actsOn(o *api.Overload, resource string) bool {
	for i := range o.Actions {
		if o.Actions[i].Active && o.Actions[i].Resource == resource {
			return true
		}
	}
	return false
}

// overloadLine returns what is short as a line of the overview; nil: nothing is short.
func overloadLine(o *api.Overload) line {
	var parts []string
	style := warn
	for i := range o.Resources {
		if r := &o.Resources[i]; r.Pressure >= highPressure || actsOn(o, r.Name) {
			parts = append(parts, r.Name+" "+percent(r.Pressure))
		}
	}
	for i := range o.Actions {
		if o.Actions[i].Active {
			parts = append(parts, o.Actions[i].Name)
			style = bad
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return line{{"overload ", faint}, {printable(strings.Join(parts, ", ")), style}}
}
