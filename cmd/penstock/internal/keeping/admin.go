package keeping

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const labelAdmin = earlykeeper.LabelAdmin

// listenAdmin listens on one of the addresses of the admin listener: on the socket that the worker before had, or on a new
// one, which the keeper holds from then on.
func (k *Link) listenAdmin(at spec.Endpoint, mode uint32) error {
	label := labelAdmin + at.String()
	item, held := k.others[label]
	if held {
		delete(k.others, label)
		f := os.NewFile(uintptr(item.FDs[0]), label)
		defer f.Close()
		if l, err := admin.Inherit(f, at, mode); err == nil {
			admin.LeavePath(l, true)
			k.admin = append(k.admin, l)
			return nil
		}
	}
	l, err := admin.Listen(at, mode)
	if err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	k.admin = append(k.admin, l)
	if !k.Present() {
		return nil
	}
	if held { // nobody can reach it: its path is gone
		k.Drop(item.Key)
	}
	f, err := admin.File(l)
	if err == nil {
		defer f.Close()
		err = k.holdFile(kindAdmin, label, f)
	}
	if err == nil {
		admin.LeavePath(l, true)
	}
	return err
}

// AdminListeners returns the sockets of the admin listener.
func (k *Link) AdminListeners() []net.Listener { return k.admin }

// Close closes the sockets of the admin listener.
func (k *Link) Close() {
	for _, l := range k.admin {
		l.Close()
	}
}

// DropOthers closes what this worker has not taken over. An admin socket at another address is not held
// any longer; what only another version knows stays held for it. It is called when this process is in its sandbox, because the worker before
// chose the labels, and ready: if it dies before, the next one has the addresses of the worker before.
func (k *Link) DropOthers() {
	for label, item := range k.others {
		closeItem(item)
		if url, ok := strings.CutPrefix(label, labelAdmin); ok {
			k.Drop(item.Key)
			if path, ok := strings.CutPrefix(url, "unix://"); ok {
				removeSocket(path)
			}
		}
	}
	clear(k.others)
}

// removeSocket removes the path of a socket, and nothing else.
func removeSocket(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		os.Remove(path)
	}
}
