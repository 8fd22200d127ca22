"""The command line: `places` names the module of each command; the options of trainings are `controller.options`."""
