"""Published data sets in the files of their authors, a module each: `load(source, split)`."""
