package doctor

import "github.com/penstock/penstock/sandbox"

// layers says what each layer of the sandbox is for, and how to have it.
var layers = map[sandbox.Layer]struct{ cost, fix string }{
	sandbox.NoNewPrivs:   {"a program that were executed could gain privileges", upgrade + "3.5 or later"},
	sandbox.Capabilities: {"whoever took the daemon over would have its capabilities", "a binary without cgo, as released: CGO_ENABLED=0"},
	sandbox.Files:        {"whoever took the daemon over could open each file that its user may", upgrade + "5.13 or later with Landlock (lsm=landlock,...), a container that allows its calls, and a binary without cgo"},
	sandbox.Network:      {"whoever took the daemon over could connect to any TCP port", upgrade + "6.7 or later with Landlock, and a binary without cgo"},
	sandbox.Scope:        {"whoever took the daemon over could send signals to processes of its user", upgrade + "6.12 or later with Landlock, and a binary without cgo"},
	sandbox.Calls:        {"whoever took the daemon over could make any system call, and execute programs", upgrade + "4.14 or later with CONFIG_SECCOMP_FILTER, on amd64 or arm64"},
}

// sandboxed examines which layers of the sandbox this kernel can hold for a process of this user.
func sandboxed(r sandbox.Report) (all []Finding) {
	for _, l := range r.Layers {
		f := Finding{Group: "sandbox", Name: l.Layer.String(), Status: OK, Found: "can be held"}
		if l.Why != "" {
			f.Found += ": " + l.Why
		}
		switch about, known := layers[l.Layer]; {
		case l.Layer == sandbox.Credentials && !l.Held:
			f.Found = "not needed: this is not root"
		case !l.Held && known:
			f.Status, f.Found, f.Cost, f.Fix = Warn, l.Why, about.cost, about.fix
		}
		all = append(all, f)
	}
	return all
}
