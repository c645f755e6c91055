// Command play shows the page of docs/play to a browser on this machine. Any other file server
// would do: the page is files, two of which `make play-page` builds.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// program is the simulation, compiled and compressed; Go's own script runs it.
const program, script = "simulation.bin", "wasm_exec.js"

func main() {
	address := flag.String("address", "localhost:8022", "where to listen")
	dir := flag.String("dir", "docs/play", "the page's folder")
	flag.Parse()
	if err := serve(*address, *dir); err != nil {
		log.Fatal(err)
	}
}

func serve(address, dir string) error {
	if err := built(dir); err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%w (-address chooses another)", err)
	}
	fmt.Fprintf(os.Stdout, "http://%s/ shows the page, until Ctrl-C\n", l.Addr())
	return (&http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: time.Minute}).Serve(l)
}

// built tells what is missing of the page.
func built(dir string) error {
	for _, name := range []string{"index.html", program, script} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("%w: `make play-page` builds it", err)
		}
	}
	return nil
}
