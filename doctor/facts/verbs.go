package facts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// providers says which part of libibverbs drives the devices of a kernel driver
// (rdma-core, providers/*: the PCI IDs that each claims).
func providers() map[string]string {
	return map[string]string{
		"mlx5_core": "mlx5", "mlx4_core": "mlx4", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma",
		"idpf": "irdma",
		"efa":  "efa", "mana": "mana", "cxgb4": "cxgb4", "qede": "qedr", "erdma": "erdma", "hfi1": "hfi1verbs",
		"hns3": "hns", "vmw_pvrdma": "vmw_pvrdma",
	}
}

// providers are those that the rails need.
func (f *Facts) providers() (names []string) {
	for _, r := range f.Rails {
		if r.Provider != "" && !slices.Contains(names, r.Provider) {
			names = append(names, r.Provider)
		}
	}
	return names
}

// libraryDirs are what the dynamic linker searches: the usual directories, and
// those of /etc/ld.so.conf.d.
func (g *Gatherer) libraryDirs() []string {
	dirs := []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu",
		"/lib/aarch64-linux-gnu",
		"/usr/lib64", "/lib64", "/usr/lib", "/lib", "/usr/local/lib", "/usr/local/lib64"}
	if g.kernel.Live {
		dirs = append(dirs, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	}
	const conf, most = "/etc/ld.so.conf.d", 64
	entries, _ := sysfs.List(g.own(conf))
	for _, e := range entries[:min(len(entries), most)] {
		text, _ := sysfs.ReadString(g.own(conf), e.Name)
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") && len(dirs) < 2*most {
				dirs = append(dirs, line)
			}
		}
	}
	return slices.DeleteFunc(dirs, func(d string) bool { return !isDir(g.own(d)) })
}

// readVerbs finds libibverbs and the providers.
func (g *Gatherer) readVerbs(names []string) work {
	if g.o.OwnRoot == "" {
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
			names = nil
		}
		for _, name := range names {
			v.Providers = append(v.Providers, g.findProvider(name, dirs, configs))
		}
		return func(f *Facts) { f.Verbs = v }
	}
}

// findProvider finds the library of a provider: where its configuration names it,
// else in the library's own directories, which are small, else in all.
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

// providerConfigs returns what /etc/libibverbs.d names, and the file that does
// (read_config in rdma-core's libibverbs/dynamic_driver.c).
func (g *Gatherer) providerConfigs() (map[string]string, error) {
	const dir, most = "/etc/libibverbs.d", 256
	names := map[string]string{}
	entries, err := sysfs.List(g.own(dir))
	if err != nil && !absent(err) {
		return names, err
	}
	for _, e := range entries[:min(len(entries), most)] {
		text, err := sysfs.ReadString(g.own(dir), e.Name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); len(words) >= 2 && words[0] == "driver" {
				names[words[1]] = filepath.Join(dir, e.Name)
			}
		}
	}
	return names, nil
}

// firstMatch returns the first file that fits a pattern, as this process's root
// has it. Directories are listed once while they do not change.
func (g *Gatherer) firstMatch(pattern string) string {
	dir, base := filepath.Split(pattern)
	fits := func(name string) bool { ok, _ := filepath.Match(base, name); return ok }
	for _, name := range g.libraries.match(g.own(dir), base, fits) {
		return filepath.Join(dir, name)
	}
	return ""
}
