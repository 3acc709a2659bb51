"""Environment files, compose files and manifests, read within bounds into what the rules of tuning look at."""
