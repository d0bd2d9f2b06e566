// Package packages holds what packages have beside the program. Its tests look at
// the packages that `make release-snapshot` has put into dist/; they are behind
// the build tag dist, `make package-test` runs them.
package packages
