// Package pages tests what is written about the library and no compiler reads: links and examples of the pages,
// comments on exported names, the Makefile. Its tests run in the root of the repository.
package pages
