package main

import (
	"fmt"
	"os"
	"path/filepath"

	helmcmd "helm.sh/helm/v4/pkg/cmd"
)

// Kustomize inflates charts by running a command named helm. This program is it, under
// that name: no other binary has to be there.

func helmLink() (command string, remove func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "argosy-helm-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	command = filepath.Join(dir, "helm")
	if err := os.Symlink(self, command); err != nil {
		remove()
		return "", nil, err
	}
	return command, remove, nil
}

func helmCommand() int {
	command, err := helmcmd.NewRootCmd(os.Stdout, os.Args[1:], helmcmd.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	return 0
}
