"""Published data sets, each as its authors or the Hub distribute it: one `load` a module."""
