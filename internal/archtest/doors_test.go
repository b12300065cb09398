package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kernelDoor is the package that may use unsafe, syscall and x/sys.
const kernelDoor = "internal/sys"

// linknameDoor is the only file that reaches into the runtime, for runtime.procPin, which
// golang/go#67401 keeps available.
const linknameDoor = "pool/pin.go"

// stdNames matches what every package may use from package syscall: types in the standard library's
// own signatures, and the values of two of them.
var stdNames = regexp.MustCompile(`^(RawConn|Conn|Errno|Signal|E[A-Z0-9]+|SIG[A-Z0-9]+)$`)

// exception allows a file or folder one of these imports, restricted to the given names, if there
// are any.
type exception struct {
	where, what string
	names       []string
	why         string
}

var exceptions = []exception{
	{where: "pool", what: "unsafe", names: []string{"Slice", "SliceData", "Pointer", "Add", "Sizeof"},
		why: "pool may not import internal/sys. A buffer is kept as the address of its first byte, so that Put allocates no header; " +
			"shards, whose size depends on a type parameter, are a cache line apart in one array; the race detector is told about them; and there is the linkname"},
	{where: "internal/testattack", what: "syscall", why: "it makes the system calls that a sandbox must refuse, and nothing else does"},
	{where: "internal/testattack", what: "golang.org/x/sys/unix", why: "as for syscall"},
	{where: "internal/testkernel", what: "syscall",
		names: []string{"Mprotect", "PROT_READ", "PROT_WRITE", "SysProcAttr", "PtraceSetOptions", "PtraceCont", "PtraceSingleStep", "RawSyscall6", "SYS_WAIT4", "WaitStatus", "WALL",
			"PtraceSyscall", "SYS_PTRACE", "Wait4", "Syscall", "SYS_FCNTL", "F_SETLEASE", "F_WRLCK"},
		why: "a process is made to die between two instructions of its own, stopped at each of its system calls, or made to wait for a file: nothing but a test does that"},
	{where: "internal/testkernel/step_linux.go", what: "unsafe", names: []string{"Pointer"}, why: "wait4(2), 100,000 times in a second"},
	{where: "internal/testkernel/trace_linux.go", what: "unsafe", names: []string{"Pointer", "Sizeof"}, why: "ptrace(2), PTRACE_GET_SYSCALL_INFO"},
	{where: "internal/testkernel/trace_linux.go", what: "golang.org/x/sys/unix", why: "the numbers of the system calls that another process makes"},
	{where: "internal/simkernel", what: "syscall", names: []string{"EBADF", "EEXIST", "ENOENT", "ENOTCONN", "EISCONN", "EALREADY", "ETIMEDOUT", "EDESTADDRREQ", "EAFNOSUPPORT"}, why: "errors that an engine never gets, unless it is wrong"},
	{where: "relay", what: "unsafe", names: []string{"Sizeof"}, why: "the size of a flow is documented, and a test checks it"},
	{where: "cmd/penstock/internal/host/process_linux.go", what: "syscall",
		names: []string{"Getrlimit", "Setrlimit", "Rlimit", "RLIMIT_NOFILE", "Getrusage", "Rusage", "RUSAGE_SELF",
			"Socket", "AF_INET", "SOCK_STREAM", "SOCK_CLOEXEC", "Close", "SetsockoptInt", "SOL_SOCKET", "SO_MARK", "SOL_IP", "IP_TRANSPARENT", "BindToDevice", "Exec", "Dup3"},
		why: "the daemon raises its descriptor limit, reports its CPU time, tries on a socket of its own whether it may set the options " +
			"that a configuration asks for, makes its checks take the route of flows, and becomes the keeper: none of that belongs in the library or on the data path"},
	{where: "cmd/penstock/internal/host/process_linux.go", what: "golang.org/x/sys/unix", names: []string{"MemfdCreate", "MFD_CLOEXEC"},
		why: "what the keeper holds for the next worker, such as the last good configuration, lies in files in memory"},
	{where: "cmd/penstock/internal/host/startmemory_linux.go", what: "golang.org/x/sys/unix", names: []string{"Syscall", "SYS_MADVISE", "MADV_DONTNEED"},
		why: "pages of the program that only the start needed are given back: it is the program's matter, not the library's"},
	{where: "cmd/penstock/internal/host/signals_linux_test.go", what: "golang.org/x/sys/unix", names: []string{"Tgkill", "Getpid", "Gettid"},
		why: "a signal whose handler has run when the call returns: kill(2) may choose another thread"},
	{where: "cmd/penstock/internal/host/listening_linux.go", what: "golang.org/x/sys/unix",
		why: "the daemon asks for the sockets of others once, at its start: sock_diag"},
	{where: "cmd/penstock/internal/host/listening_linux.go", what: "syscall", names: []string{"ParseNetlinkMessage", "Errno"},
		why: "as for x/sys, which has no parser of netlink messages"},
	{where: "cmd/penstock/internal/earlykeeper/broker_linux.go", what: "golang.org/x/sys/unix",
		why: "the keeper opens files for a worker that may not, and must not be led elsewhere by links: openat2"},
	{where: "cmd/penstock/internal/earlykeeper/answer_linux.go", what: "golang.org/x/sys/unix", names: []string{"FcntlInt", "F_DUPFD_CLOEXEC"},
		why: "while no worker runs, the keeper answers on a duplicate of a socket that it holds"},
	{where: "cmd/penstock/internal/admin/actor_linux.go", what: "syscall", names: []string{"Ucred", "GetsockoptUcred", "SOL_SOCKET", "SO_PEERCRED"},
		why: "an operator's change is told with the user who made it: once per change, on a socket of the admin listener"},
	{where: "cmd/penstock/route_test.go", what: "syscall", names: []string{"Unshare", "CLONE_NEWNET", "Gettid"},
		why: "a test has a socket at the other end of a link, in the network namespace of a thread"},
	{where: "cmd/penstock/internal/lists", what: "syscall", names: []string{"O_NONBLOCK", "Mkfifo"},
		why: "the file of a list may become a pipe at any time, whose opening would wait for its other end"},
	{where: "cmd/penstock/internal/doctor", what: "golang.org/x/sys/unix",
		why: "the doctor probes the kernel on sockets of its own; none of that is on the data path"},
	{where: "cmd/penstock/internal/packets/socket_linux.go", what: "golang.org/x/sys/unix",
		why: "penstock capture takes packets from a packet socket, in a process of its own: none of that is on the data path"},
	{where: "bench", what: "golang.org/x/sys/unix",
		why: "the load generator and the meters must not use the code that they measure"},
	{where: "bench", what: "syscall", why: "as for x/sys"},
	{where: "bench", what: "unsafe", why: "as for x/sys"},
}

func TestKernelDoor(t *testing.T) {
	for _, f := range tree(t) {
		for _, complaint := range checkDoor(f) {
			t.Error(complaint)
		}
	}
}

func checkDoor(f *file) (complaints []string) {
	if f.pkg == kernelDoor {
		return nil
	}
	for _, i := range f.imports {
		if i.path != "unsafe" && i.path != "syscall" && !strings.HasPrefix(i.path, "golang.org/x/sys/") {
			continue
		}
		n := slices.IndexFunc(exceptions, func(e exception) bool {
			return e.what == i.path && (e.where == f.path || e.where == f.pkg || strings.HasPrefix(f.pkg, e.where+"/"))
		})
		if n >= 0 && exceptions[n].names == nil {
			continue
		}
		var names []string
		if n >= 0 {
			names = exceptions[n].names
		}
		for _, used := range selected(f, i) {
			if slices.Contains(names, used) || i.path == "syscall" && stdNames.MatchString(used) {
				continue
			}
			complaints = append(complaints, fmt.Sprintf("%s: %s.%s belongs in %s", i.pos, i.path, used, kernelDoor))
		}
		if i.name == "." || i.name == "_" && n < 0 {
			complaints = append(complaints, fmt.Sprintf("%s: import %s %s belongs in %s", i.pos, i.name, i.path, kernelDoor))
		}
	}
	for _, g := range f.syntax.Comments {
		for _, c := range g.List {
			if strings.HasPrefix(c.Text, "//go:linkname") && f.path != linknameDoor {
				complaints = append(complaints, fmt.Sprintf("%s: linkname is not allowed here", f.fset.Position(c.Pos())))
			}
		}
	}
	return complaints
}

// selected returns the names that f uses from import i.
func selected(f *file, i imported) (names []string) {
	local := i.name
	if local == "" {
		local = i.path[strings.LastIndexByte(i.path, '/')+1:]
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local && !slices.Contains(names, s.Sel.Name) {
				names = append(names, s.Sel.Name)
			}
		}
		return true
	})
	return names
}

// notInLibrary are packages of the standard library that would make a library write output, depend
// on the environment, or start something unexpectedly.
var notInLibrary = []string{"log", "flag", "expvar", "os/signal", "os/exec", "net/http", "net/http/pprof", "testing", "plugin"}

// describes are the names of log/slog with which a value describes how it is logged. Functions that
// write a log are not among them.
var describes = []string{"Attr", "Value", "GroupValue", "StringValue", "Duration", "Int", "Int64", "String", "Uint64"}

// processes are the packages of the library that run a process instead of being used by one. They may handle
// signals and read the environment that one process of theirs leaves for the next, and nothing else of what is
// not in the library.
var processes = []string{"keeper"}

// ofProcesses is what they may use besides.
var ofProcesses = []string{"os/signal", "LookupEnv", "Environ"}

// TestLibraryIsSilent: the library does not log, reads no environment variables, and does nothing
// on import. testnet, testwait, testattack and testcost are exempt, because they are for tests.
func TestLibraryIsSilent(t *testing.T) {
	for _, f := range tree(t) {
		for _, complaint := range checkSilence(f) {
			t.Error(complaint)
		}
	}
}

// earlyDoor is the only file with a func init: what it does must come before other packages are initialised.
const earlyDoor = "cmd/penstock/internal/earlykeeper/keeper_linux.go"

func checkSilence(f *file) (complaints []string) {
	if f.test || f.pkg == "internal/testnet" || f.pkg == "internal/testwait" || f.pkg == "internal/testattack" || f.pkg == "internal/testcost" || f.module() == "bench" || f.module() == "fleettest" {
		return nil
	}
	for _, d := range f.syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && f.path != earlyDoor {
			complaints = append(complaints, fmt.Sprintf("%s: func init is not allowed", f.fset.Position(fn.Pos())))
		}
	}
	if f.module() == "cmd/penstock" {
		return complaints
	}
	allowed := func(what string) bool { return slices.Contains(processes, f.pkg) && slices.Contains(ofProcesses, what) }
	for _, i := range f.imports {
		if slices.Contains(notInLibrary, i.path) && !allowed(i.path) {
			complaints = append(complaints, fmt.Sprintf("%s: the library must not import %s", i.pos, i.path))
		}
		if i.path == "log/slog" {
			for _, name := range selected(f, i) {
				if !slices.Contains(describes, name) {
					complaints = append(complaints, fmt.Sprintf("%s: the library must not use slog.%s", i.pos, name))
				}
			}
		}
		if i.path == "os" {
			for _, name := range selected(f, i) {
				if slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Exit", "Stdout", "Stderr"}, name) && !allowed(name) {
					complaints = append(complaints, fmt.Sprintf("%s: the library must not use os.%s", i.pos, name))
				}
			}
		}
	}
	return complaints
}
