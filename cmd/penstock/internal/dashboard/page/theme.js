// Before the first paint: the look that was chosen here before, or the system's.
const look = localStorage.getItem('penstock-look');
if (look === 'light' || look === 'dark') document.documentElement.dataset.look = look;
