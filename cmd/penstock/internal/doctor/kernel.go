package doctor

import "io/fs"

// badGSO are the releases that damage GSO runs without an error, from the first to before the
// second (docs/kernel.md). A distribution may have fixed its own.
var badGSO = [2][3]int{{7, 0, 0}, {7, 1, 5}}

// oldest is the first release that has all the features: UDP_GRO is the youngest.
var oldest = [3]int{5, 0, 0}

func kernel(root fs.FS) []Finding {
	f := Finding{Group: "kernel", Name: "release", Status: OK, Found: sysctl(root, "kernel.osrelease")}
	switch v := release(f.Found); {
	case v == [3]int{}:
		f.Status, f.Found, f.Cost = Warn, "unknown", "it may be one of the releases that damage GSO runs"
	case !before(v, badGSO[0]) && before(v, badGSO[1]):
		f.Status = Warn
		f.Cost = "Linux 7.0 to 7.1.4 damages datagrams sent with GSO, with no error"
		f.Fix = "upgrade to 7.1.5 or later; until then engine.gso: false in the configuration, or penstock relay --no-gso"
	case before(v, oldest):
		f.Status = Warn
		f.Cost = "older than 5.0: no UDP_GRO; other missing features are listed below"
		f.Fix = "upgrade the kernel"
	}
	return []Finding{f}
}
