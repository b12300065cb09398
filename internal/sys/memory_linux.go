package sys

import (
	"math/bits"
	"reflect"
	"unsafe"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// Memfd creates an anonymous file of size zeros, close-on-exec, which can be mapped by every process that
// has a descriptor of it. Its size is sealed, so that no holder can shrink it under a mapping. It takes
// memory only for pages that were touched. memfd_create(2).
func Memfd(name string, size int64) (int, Errno) {
	// Since Linux 6.3 the kernel wants to be told that nobody will execute the file; older ones refuse
	// the flag. 0x8 is MFD_NOEXEC_SEAL.
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, errnoOf(err)
	}
	if err = unix.Ftruncate(fd, size); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		Linux{}.Close(fd)
		return -1, errnoOf(err)
	}
	return fd, 0
}

// SealedSize returns the size of an anonymous file that cannot shrink. It returns EPERM if the file may
// shrink, and EINVAL if fd is no such file: memory mapped from one of those could vanish. fcntl(2),
// F_GET_SEALS.
func SealedSize(fd int) (int64, Errno) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, errnoOf(err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 || seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return 0, EPERM
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, errnoOf(err)
	}
	return st.Size, 0
}

// Map maps the first size bytes of a file, shared with all others who map it. The memory is not Go's: the
// slice must not be used after Unmap. mmap(2).
func Map(fd int, size int64) ([]byte, Errno) {
	if size <= 0 || int64(int(size)) != size {
		return nil, EINVAL
	}
	b, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, errnoOf(err)
	}
	// Most of a large mapping has no memory. A core dump would touch each page, and every page that is
	// touched is taken from the machine for as long as the file exists; huge pages would take 2 MiB for
	// a single record. EINVAL means that the kernel has none.
	if err := unix.Madvise(b, unix.MADV_DONTDUMP); err != nil {
		unix.Munmap(b)
		return nil, errnoOf(err)
	}
	unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	return b, 0
}

// Unmap ends a mapping; b is what Map returned. munmap(2).
func Unmap(b []byte) Errno {
	if err := unix.Munmap(b); err != nil {
		return errnoOf(err)
	}
	return 0
}

// PunchHole gives n bytes of a file back to the kernel, from an offset on: whole pages are freed, and read
// as zeros from then on, in mappings too. fallocate(2), FALLOC_FL_PUNCH_HOLE.
func PunchHole(fd int, offset, n int64) Errno {
	err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, n)
	if err != nil {
		return errnoOf(err)
	}
	return 0
}

// Cast returns the memory of b as a *T, so that its fields are read and written in place. T must consist
// of numbers only, without pointers: the garbage collector does not look there, and its
// write barrier would stumble over what another process has left. b must be large enough, and as aligned
// as T (pages of a mapping are); otherwise Cast panics.
func Cast[T any](b []byte) *T {
	var t T
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(len(b)) < unsafe.Sizeof(t) || uintptr(p)%unsafe.Alignof(t) != 0 || hasPointers(reflect.TypeFor[T]()) {
		panic("sys: Cast: wrong type, size or alignment")
	}
	return (*T)(p)
}

func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	return t.Kind() > reflect.Complex128
}

// Offset returns where in b the memory of part begins, even if part is empty. It reports false if that is
// outside of b.
func Offset(b, part []byte) (int, bool) {
	// Addresses below that of b wrap around.
	n := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return int(n), n < uintptr(len(b))
}

// Store64 stores v little-endian at the beginning of b, which must be aligned for it, with one instruction
// on every machine: whoever shares the memory never sees a part of it. So do Store32 and Store16. A
// compiler may drop a store that a later one covers, unless there is a call between them.
func Store64(b []byte, v uint64) { *(*uint64)(unsafe.Pointer((*[8]byte)(b))) = little64(v) }

// Store32 is described at Store64.
func Store32(b []byte, v uint32) { *(*uint32)(unsafe.Pointer((*[4]byte)(b))) = little32(v) }

// Store16 is described at Store64.
func Store16(b []byte, v uint16) { *(*uint16)(unsafe.Pointer((*[2]byte)(b))) = little16(v) }

// Load64 returns what Store64 has stored. So do Load32 and Load16.
func Load64(b []byte) uint64 { return little64(*(*uint64)(unsafe.Pointer((*[8]byte)(b)))) }

// Load32 is described at Load64.
func Load32(b []byte) uint32 { return little32(*(*uint32)(unsafe.Pointer((*[4]byte)(b)))) }

// Load16 is described at Load64.
func Load16(b []byte) uint16 { return little16(*(*uint16)(unsafe.Pointer((*[2]byte)(b)))) }

func little64(v uint64) uint64 {
	if cpu.IsBigEndian {
		return bits.ReverseBytes64(v)
	}
	return v
}

func little32(v uint32) uint32 {
	if cpu.IsBigEndian {
		return bits.ReverseBytes32(v)
	}
	return v
}

func little16(v uint16) uint16 {
	if cpu.IsBigEndian {
		return bits.ReverseBytes16(v)
	}
	return v
}

// Wipe overwrites the numbers that a value has in itself, also those of fields that are not exported. What it points to stays, and so does a value that
// is not addressable, as what an interface holds.
func Wipe(v reflect.Value) {
	switch k := v.Kind(); {
	case !v.CanAddr():
	case k == reflect.Struct:
		for i := range v.NumField() {
			Wipe(v.Field(i))
		}
	case k == reflect.Array:
		for i := range v.Len() {
			Wipe(v.Index(i))
		}
	case k >= reflect.Bool && k <= reflect.Complex128:
		clear(unsafe.Slice((*byte)(unsafe.Pointer(v.UnsafeAddr())), v.Type().Size()))
	}
}
