package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// VerbsFacts is what libibverbs would find on this process's file system.
type VerbsFacts struct {
	Known     bool            `json:"known"`     // there are directories of libraries at all
	Library   string          `json:"library"`   // path of libibverbs.so.1; empty where there is none
	Providers []ProviderFacts `json:"providers"` // one for each provider that rails need
}

// ProviderFacts is libibverbs' part for one family of devices.
type ProviderFacts struct {
	Name    string `json:"name"`
	Library string `json:"library"` // path of lib<name>-rdmav<N>.so; empty where there is none
	Config  string `json:"config"`  // path of the file in /etc/libibverbs.d that names it; empty where none does
}

// providers says which part of libibverbs drives the devices of a kernel driver
// (rdma-core, providers/*: the PCI IDs that each claims).
func providers() map[string]string {
	return map[string]string{
		"mlx5_core": "mlx5", "mlx4_core": "mlx4", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma", "idpf": "irdma", "efa": "efa",
		"mana": "mana", "cxgb4": "cxgb4", "qede": "qedr", "erdma": "erdma", "hfi1": "hfi1verbs", "hns3": "hns", "vmw_pvrdma": "vmw_pvrdma",
	}
}

// providerOf names the provider that a rail needs, empty when not known.
func providerOf(r rail.Rail) string {
	if !r.Software {
		return providers()[r.Driver]
	}
	switch kind, err := sysfs.ReadString(r.Dir, "node_type"); {
	case err != nil:
		return ""
	case strings.HasSuffix(kind, "RNIC"): // iWARP
		return "siw"
	default:
		return "rxe"
	}
}

// libraryDirs are where the dynamic linker looks: the usual ones, and those of
// /etc/ld.so.conf.d.
func (s *system) libraryDirs() []string {
	dirs := []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
		"/usr/lib64", "/lib64", "/usr/lib", "/lib", "/usr/local/lib", "/usr/local/lib64"}
	if s.live {
		dirs = append(dirs, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	}
	const conf, most = "/etc/ld.so.conf.d", 64
	entries, _ := sysfs.List(s.own(conf))
	for _, e := range entries[:min(len(entries), most)] {
		text, _ := sysfs.ReadString(s.own(conf), e.Name)
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") && len(dirs) < 2*most {
				dirs = append(dirs, line)
			}
		}
	}
	return dirs
}

// readVerbs looks for libibverbs and the providers of all rails.
func (s *system) readVerbs(context.Context) part {
	var v VerbsFacts
	if s.root == "" {
		return part{put: func(*SystemFacts) {}}
	}
	dirs := slices.DeleteFunc(s.libraryDirs(), func(d string) bool { return !isDir(s.own(d)) })
	v.Known = len(dirs) > 0
	for _, d := range dirs {
		if path := filepath.Join(d, "libibverbs.so.1"); v.Library == "" && exists(s.own(path)) {
			v.Library = path
		}
	}
	configs, err := s.providerConfigs()
	var unread []string
	if err != nil {
		unread = append(unread, fmt.Sprintf("providers of libibverbs: %v; run doctor as root", err))
	}
	seen := map[string]bool{"": true}
	for _, r := range s.rails {
		name := providerOf(r)
		if seen[name] {
			continue
		}
		seen[name] = true
		p := ProviderFacts{Name: name}
		for text, path := range configs {
			if base := filepath.Base(text); base == name || base == "lib"+name {
				p.Config = path
				if filepath.IsAbs(text) {
					p.Library = s.firstMatch(text + "-rdmav*.so")
				}
			}
		}
		for _, sub := range []string{"libibverbs", ""} { // the library's own directory first: the others hold thousands of names
			for _, d := range dirs {
				if p.Library == "" {
					p.Library = s.firstMatch(filepath.Join(d, sub, "lib"+name+"-rdmav*.so"))
				}
			}
		}
		if err == nil {
			v.Providers = append(v.Providers, p)
		}
	}
	return part{put: func(f *SystemFacts) { f.Verbs = v }, unread: unread}
}

// providerConfigs returns what /etc/libibverbs.d names, and the file that does
// (read_config in rdma-core's libibverbs/dynamic_driver.c).
func (s *system) providerConfigs() (map[string]string, error) {
	const dir, most = "/etc/libibverbs.d", 256
	names := map[string]string{}
	entries, err := sysfs.List(s.own(dir))
	if err != nil {
		if sysfs.Reason(err) == sysfs.ReasonVanished {
			err = nil
		}
		return names, err
	}
	for _, e := range entries[:min(len(entries), most)] {
		text, err := sysfs.ReadString(s.own(dir), e.Name)
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
// has it.
func (s *system) firstMatch(pattern string) string {
	list, err := filepath.Glob(s.own(pattern))
	if err != nil || len(list) == 0 {
		return ""
	}
	path, err := filepath.Rel(s.root, list[0])
	if err != nil {
		return ""
	}
	return "/" + path
}

func checkLibibverbs(f *Facts, found func(Finding)) {
	if len(f.System.Ports) == 0 || !f.System.Verbs.Known || f.System.Verbs.Library != "" {
		return
	}
	found(Finding{
		Severity: Fault, Subject: "this node",
		Read: "libibverbs.so.1 is in none of the directories that the dynamic linker looks into",
		Why:  "NCCL, UCX and every other RDMA program open it; without it they go by TCP, mostly without a word",
		Mend: []string{"apt-get install -y rdma-core libibverbs1 ibverbs-providers", "# Fedora, RHEL, Rocky: dnf install rdma-core libibverbs"},
	})
}

func checkProvider(f *Facts, found func(Finding)) {
	if f.System.Verbs.Library == "" { // which is the finding
		return
	}
	for _, p := range f.System.Verbs.Providers {
		if p.Library != "" && p.Config != "" {
			continue
		}
		var ports []PortFacts
		for _, port := range f.System.Ports {
			if port.Provider == p.Name {
				ports = append(ports, port)
			}
		}
		if len(ports) == 0 {
			continue
		}
		finding := Finding{
			Severity: Fault, Subject: railsOf(ports),
			Read: fmt.Sprintf("no lib%s-rdmav*.so beside %s", p.Name, f.System.Verbs.Library),
			Why:  "libibverbs reaches a device only through the provider for its driver; without it the device is not in its list, and programs go by TCP",
			Mend: []string{"apt-get install -y --reinstall ibverbs-providers", "# Fedora, RHEL, Rocky: dnf reinstall libibverbs"},
		}
		if p.Library != "" {
			finding.Read = fmt.Sprintf("%s is there, but no file in /etc/libibverbs.d has the line: driver %s", p.Library, p.Name)
			finding.Mend = []string{fmt.Sprintf("mkdir -p /etc/libibverbs.d && echo %s > %s", shellWord("driver "+p.Name), shellWord("/etc/libibverbs.d/"+p.Name+".driver"))}
		}
		found(finding)
	}
}
