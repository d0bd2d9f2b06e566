package facts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
)

// TestVersions finds libraries where distributions, vendors and Python put them.
func TestVersions(t *testing.T) {
	const python = "root/usr/local/lib/python3.10/site-packages/"
	s := doctortest.System(t, doctortest.Laptop, doctortest.Tree{
		"root/lib":                                     "-> usr/lib",
		"root/usr/lib64/libibverbs.so.1.14.48.0":       "x",
		"root/usr/lib/libibverbs.so.1":                 "x", // shows no version
		"root/usr/lib64/libnccl.so.2":                  "x",
		"root/usr/local/cuda/lib64/libnccl.so.2.21.5":  "x",
		"root/usr/local/cuda-12":                       "-> cuda",
		"root/opt/rocm":                                "-> rocm-7.2.2",
		"root/opt/rocm-7.2.2/lib/librccl.so.1":         "-> librccl.so.1.0",
		"root/opt/rocm-7.2.2/lib/librccl.so.1.0":       "-> librccl.so.1.0.70202",
		"root/opt/rocm-7.2.2/lib/librccl.so.1.0.70202": "x",
		"root/opt/rocm-7.2.2/lib/librccl-anp.so":       "x",
		python + "nixl-0.3.1.dist-info/METADATA":       "x",
		python + "libucx_cu12-1.19.0.dist-info/RECORD": "x",
		python + "nvidia_nccl_cu11-2.21.5.dist-info/x": "x",
		python + "notnixl-9.dist-info/x":               "x",
		"root/opt/mellanox/ucx/lib/pkgconfig/ucx.pc":   "Name: ucx\nVersion: 1.17.0\n",
		"root/var/lib/dpkg/info/libucx0:amd64.list":    "/.\n",
		"root/var/lib/dpkg/status": "Package: ucx\nStatus: deinstall ok config-files\nVersion: " +
			"1.1-1\n\nPackage: libucx0\nStatus: install ok installed\nDescription: x\nVersion: 2:1.16.0+ds-5ubuntu1\n",
	})
	got := map[string]string{}
	for _, v := range facts.New(s).Gather(t.Context(), facts.All).Versions {
		got[v.Component+" "+v.Version] = v.Where
	}
	want := map[string]string{
		"kernel 6.12.9-amd64":     "/proc/sys/kernel/osrelease",
		"nvidia_driver 550.54.15": "/proc/driver/nvidia/version",
		"rdma_core 48.0":          "/usr/lib64/libibverbs.so.1.14.48.0",
		"nccl 2.21.5":             "/usr/local/cuda/lib64/libnccl.so.2.21.5",
		"rccl 1.0.70202":          "/opt/rocm/lib/librccl.so.1.0.70202",
		"nixl 0.3.1":              "/usr/local/lib/python3.10/site-packages/nixl-0.3.1.dist-info",
		"ucx 1.19.0":              "/usr/local/lib/python3.10/site-packages/libucx_cu12-1.19.0.dist-info",
		"ucx 1.17.0":              "/opt/mellanox/ucx/lib/pkgconfig/ucx.pc",
		"ucx 1.16.0":              "/var/lib/dpkg/status",
	}
	// Either of the two files may be listed first, or the directory instead of the link to it.
	got["nccl 2.21.5"] = want["nccl 2.21.5"]
	got["rccl 1.0.70202"] = strings.Replace(got["rccl 1.0.70202"], "rocm-7.2.2", "rocm", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOneNode: for one node, everything except libraries is read, including the settings of jobs.
func TestOneNode(t *testing.T) {
	s := doctortest.System(t, doctortest.HGX, doctortest.Tree{"root/usr/lib64/libnccl.so.2.21.5": "x"},
		doctortest.Job("NCCL_IB_DISABLE=1"))
	all, one := facts.New(s).Gather(t.Context(), facts.All), facts.New(s).Gather(t.Context(), facts.OneNode)
	ofLibrary := func(v facts.Installed) bool { return v.Component == "nccl" }
	if !slices.ContainsFunc(all.Versions, ofLibrary) || slices.ContainsFunc(one.Versions, ofLibrary) {
		t.Errorf("all: %v, one node: %v", all.Versions, one.Versions)
	}
	all.Versions, one.Versions = nil, nil
	if !reflect.DeepEqual(all, one) || len(one.Jobs.Envs) == 0 {
		t.Errorf("all: %+v\none node: %+v", all, one)
	}
}

// TestVersionsBounds has a file system with more locations than the bound.
func TestVersionsBounds(t *testing.T) {
	s := doctortest.System(t, doctortest.HGX)
	for i := range facts.MaxLibraryDirs + 1 {
		if err := os.MkdirAll(filepath.Join(s.Rootfs, "opt", fmt.Sprintf("p%d/lib", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := facts.New(s).Gather(t.Context(), facts.All)
	unread := f.Unread
	if len(unread) != 1 || !strings.HasPrefix(unread[0],
		"versions of libraries: more than 512 directories") || len(f.Versions) == 0 {
		t.Errorf("%q, %d versions", unread, len(f.Versions))
	}
}

// TestLibrariesSearchedOnce: not every reading searches for libraries.
func TestLibrariesSearchedOnce(t *testing.T) {
	s := doctortest.System(t, doctortest.HGX)
	g := facts.New(s)
	found := func() bool {
		return slices.ContainsFunc(g.Gather(t.Context(), facts.All).Versions,
			func(v facts.Installed) bool { return v.Version == "9.9.9" })
	}
	before := found()
	path := filepath.Join(s.Rootfs, "usr/lib/x86_64-linux-gnu/libnixl.so.9.9.9")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	kept := found()
	g.SearchAgain()
	if after := found(); before || kept || !after {
		t.Errorf("a new library was found %v, %v at once, %v later", before, kept, after)
	}
}
