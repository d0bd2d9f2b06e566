package facts

import (
	"os"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// libraryCache remembers what was found in directories of libraries, which hold
// thousands of names and seldom change: each is listed again only after its time
// of modification changed. Safe for concurrent use; the zero value is ready.
type libraryCache struct {
	list func(dir string) ([]sysfs.Entry, error) // nil is [sysfs.List]

	mu    sync.Mutex // protects the following field; never held while a directory is read
	known map[string]cachedNames
}

type cachedNames struct {
	changed time.Time
	names   []string
}

// Bounds of the cache.
const (
	maxCached = 4096            // directories
	settled   = 2 * time.Second // since a change, in which another one may have the same time
)

// match returns the names in a directory for which keep is true, in order; key
// identifies keep. A directory that cannot be listed has none.
func (c *libraryCache) match(dir, key string, keep func(name string) bool) []string {
	st, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	cached, known := c.known[dir+"\x00"+key]
	c.mu.Unlock()
	if known && cached.changed.Equal(st.ModTime()) {
		return cached.names
	}
	list, now := c.list, time.Now()
	if list == nil {
		list = sysfs.List
	}
	entries, err := list(dir)
	var names []string
	for _, e := range entries {
		if keep(e.Name) {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCached || c.known == nil {
		c.known = map[string]cachedNames{}
	}
	if err == nil && now.Sub(st.ModTime()) > settled {
		c.known[dir+"\x00"+key] = cachedNames{st.ModTime(), names}
	}
	return names
}
