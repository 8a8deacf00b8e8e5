#!/bin/sh
# The input is JSON on standard input. JSON on standard output becomes the output.
name=$(sed 's/.*"name": *"\([^"]*\)".*/\1/')
echo "greeting $name" >&2
echo "$name" > "$STOKE_OUTPUT_DIR/name.txt"
printf '"Hello, %s!"\n' "$name"
