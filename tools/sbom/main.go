// Command sbom writes what a Go program is made of, as a CycloneDX document,
// from the build information that the linker put into it: what is listed is what
// is inside, whatever go.mod says.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "version of the program")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom -version VERSION PROGRAM FILE")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), flag.Arg(1), *version); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run writes the document of program to file.
func run(program, file, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read build information of %s: %w", program, err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	bom, err := describe(info, content, version)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom,
		cdx.SpecVersion1_6); err != nil {
		out.Close()
		return fmt.Errorf("write %s: %w", file, err)
	}
	return out.Close()
}

// describe lists the modules of a program. It has neither a time nor a random
// number, so that the same program has the same document.
func describe(info *buildinfo.BuildInfo, content []byte, version string) (*cdx.BOM, error) {
	sum := sha256.Sum256(content)
	main := component(cdx.ComponentTypeApplication, debug.Module{Path: info.Main.Path, Version: version})
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	main.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	settings := make([]cdx.Property, 0, len(info.Settings))
	for _, s := range info.Settings {
		settings = append(settings, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	main.Properties = &settings

	// The standard library is the toolchain's.
	list := []cdx.Component{component(cdx.ComponentTypeLibrary,
		debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})}
	needs := []string{list[0].BOMRef}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		c := component(cdx.ComponentTypeLibrary, *dep)
		if err := hash(&c, dep.Sum); err != nil {
			return nil, fmt.Errorf("module %s: %w", dep.Path, err)
		}
		list, needs = append(list, c), append(needs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &list
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &needs}}
	return bom, nil
}

// component names a module by its package URL (purl-spec, type golang).
func component(kind cdx.ComponentType, m debug.Module) cdx.Component {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	return cdx.Component{Type: kind, BOMRef: purl, Name: m.Path, Version: m.Version, PackageURL: purl}
}

// hash sets the sum that go.sum has of a module: SHA-256 over the list of its
// files (golang.org/x/mod/sumdb/dirhash).
func hash(c *cdx.Component, sum string) error {
	encoded, found := strings.CutPrefix(sum, "h1:")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !found || err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("%q is no sum of a module", sum)
	}
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
	return nil
}
