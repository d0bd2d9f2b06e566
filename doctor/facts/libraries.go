package facts

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// libraryCache remembers the names found in library directories, which hold thousands and seldom change: each is listed
// again only after its modification time has changed. Safe for concurrent use; the zero value is ready.
type libraryCache struct {
	list func(dir string) ([]sysfs.Entry, error) // nil is [sysfs.List]

	mu    sync.Mutex // protects known; not held while a directory is read
	known map[[2]string]cachedNames
}

type cachedNames struct {
	changed time.Time
	names   []string
}

// Bounds of the cache.
const (
	maxCached = 4096            // directories
	settled   = 2 * time.Second // after a change, another one may have the same time
)

// match returns the names in a directory for which keep is true, sorted; key identifies keep. It returns none if the
// directory cannot be listed.
func (c *libraryCache) match(dir, key string, keep func(name string) bool) []string {
	st, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	id := [2]string{dir, key}
	c.mu.Lock()
	cached, known := c.known[id]
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
		c.known = map[[2]string]cachedNames{}
	}
	if err == nil && now.Sub(st.ModTime()) > settled {
		c.known[id] = cachedNames{st.ModTime(), names}
	}
	return names
}

// glob returns the names in a directory that match a pattern, sorted.
func (c *libraryCache) glob(dir, pattern string) []string {
	return c.match(dir, pattern, func(name string) bool {
		ok, _ := filepath.Match(pattern, name)
		return ok
	})
}
