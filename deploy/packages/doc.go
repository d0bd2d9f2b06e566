// Package packages contains the files of the deb and rpm packages. Its tests check the packages that `make
// release-snapshot` writes to dist/. They have the build tag dist; run them with `make package-test`.
package packages
