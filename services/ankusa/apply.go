package main

import "github.com/spf13/cobra"

func newApply() *cobra.Command { return &cobra.Command{Use: "apply"} }
