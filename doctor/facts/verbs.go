package facts

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

func (g *Gatherer) configLines(dir string, each func(path, line string)) error {
	const most = 256 // files
	entries, err := sysfs.List(g.own(dir))
	for _, e := range entries[:min(len(entries), most)] {
		text, _ := sysfs.ReadString(g.own(dir), e.Name)
		for line := range strings.Lines(text) {
			each(filepath.Join(dir, e.Name), strings.TrimSpace(line))
		}
	}
	return err
}

// libraryDirs are the directories that the dynamic linker searches: the usual ones, and those of /etc/ld.so.conf.d.
func (g *Gatherer) libraryDirs() []string {
	const most = 128
	dirs := []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu",
		"/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib", "/usr/local/lib", "/usr/local/lib64"}
	if g.kernel.Live {
		dirs = append(dirs, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	}
	_ = g.configLines("/etc/ld.so.conf.d", func(_, line string) { // need not exist
		if strings.HasPrefix(line, "/") && len(dirs) < most {
			dirs = append(dirs, line)
		}
	})
	return slices.DeleteFunc(dirs, func(d string) bool { return !isDir(g.own(d)) })
}

func (g *Gatherer) readVerbs(rails []Rail) work {
	if g.root == "" {
		return nil
	}
	return func(r *reader) func(*Facts) {
		dirs := g.libraryDirs()
		v := Verbs{Known: len(dirs) > 0}
		for _, d := range dirs {
			if path := filepath.Join(d, "libibverbs.so.1"); v.Library == "" && exists(g.own(path)) {
				v.Library = path
			}
		}
		configs, err := g.providerConfigs()
		if err != nil {
			r.say("providers of libibverbs: %v; run doctor as root", err)
			return func(f *Facts) { f.Verbs = v }
		}
		for _, rail := range rails {
			found := func(p Provider) bool { return p.Name == rail.Provider }
			if rail.Provider != "" && !slices.ContainsFunc(v.Providers, found) {
				v.Providers = append(v.Providers, g.findProvider(rail.Provider, dirs, configs))
			}
		}
		return func(f *Facts) { f.Verbs = v }
	}
}

// findProvider finds a provider's library: by its configuration, in libibverbs' own directories, or in all.
func (g *Gatherer) findProvider(name string, dirs []string, configs map[string]string) Provider {
	p := Provider{Name: name}
	for driver, path := range configs {
		if base := filepath.Base(driver); base == name || base == "lib"+name {
			p.Config = path
			if filepath.IsAbs(driver) {
				p.Library = g.firstMatch(driver + "-rdmav*.so")
			}
		}
	}
	for _, sub := range []string{"libibverbs", ""} {
		for _, d := range dirs {
			if p.Library == "" {
				p.Library = g.firstMatch(filepath.Join(d, sub, "lib"+name+"-rdmav*.so"))
			}
		}
	}
	return p
}

// providerConfigs returns the drivers that /etc/libibverbs.d names (rdma-core, libibverbs/dynamic_driver.c).
func (g *Gatherer) providerConfigs() (map[string]string, error) {
	names := map[string]string{}
	err := g.configLines("/etc/libibverbs.d", func(path, line string) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == "driver" {
			names[words[1]] = path
		}
	})
	if absent(err) {
		err = nil
	}
	return names, err
}

func (g *Gatherer) firstMatch(pattern string) string {
	found, _ := fs.Glob(os.DirFS(g.root), strings.TrimPrefix(pattern, "/")) // an invalid pattern matches nothing
	if len(found) == 0 {
		return ""
	}
	return "/" + found[0]
}
