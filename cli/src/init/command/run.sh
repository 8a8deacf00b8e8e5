#!/bin/sh
# The input is JSON; what is printed as JSON is the result's output.
name=$(sed 's/.*"name": *"\([^"]*\)".*/\1/')
echo "greeting $name" >&2
echo "$name" > "$STOKE_OUTPUT_DIR/name.txt"
printf '"Hello, %s!"\n' "$name"
